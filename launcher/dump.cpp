#include "launcher/dump.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include <gantry/core/error.hpp>

#include "core/escaped_text.hpp"
#include "core/json.hpp"
#include "core/process_stamp.hpp"
#include "launcher/report.hpp"

namespace gantry::launcher {

using flight::Lane;
using flight::OpenFile;
using flight::Record;
using flight::View;

namespace {

constexpr Lane kAllLanes[] = {Lane::collective, Lane::send, Lane::recv};
constexpr const char* kLaneNames[] = {"collectives", "sends", "receives"};
// Calls of a rank in JSON.
constexpr std::size_t kListedCalls = 16;

ProcessState process_state(const ProcessStamp& process, bool same_boot) {
  if (process.pid <= 0) return ProcessState::absent;
  if (!same_boot) return ProcessState::ended;
  switch (status_of(process).liveness) {
    case Liveness::running:
      return ProcessState::alive;
    case Liveness::stopped:
      return ProcessState::stopped;
    case Liveness::ended:
      return ProcessState::ended;
    case Liveness::unknown:
      break;
  }
  return ProcessState::unknown;
}

std::vector<Record> calls_of(const View& view, int rank) {
  std::vector<Record> calls;
  const std::uint64_t newest = view.rank(rank).recorded.load(std::memory_order_acquire);
  for (std::uint64_t back = 0; back < std::min<std::uint64_t>(newest, flight::kRing); ++back) {
    const std::uint64_t ticket = newest - back;
    if (const auto record = view.ring(rank)[ticket % flight::kRing].get(ticket)) {
      calls.push_back(*record);
    }
  }
  return calls;
}

LaneReport look_at_lane(const View& view, Lane lane, int rank, const std::vector<Record>& calls) {
  LaneReport report;
  report.progress = view.words(rank).progress(lane);
  for (const Record& record : calls) {
    if (view.lane(record.call) != lane) continue;
    const auto number = static_cast<std::uint64_t>(record.call.number);
    if (report.enqueued == 0) report.enqueued = number;
    if (!report.progress.is_under_way() || number == report.progress.started) {
      report.current = record;
      break;
    }
  }
  return report;
}

RankReport look_at_rank(const View& view, int rank, bool same_boot) {
  const flight::Rank& facts = view.rank(rank);
  RankReport report;
  report.rank = rank;
  report.pid = facts.pid;
  report.host = escaped_field(facts.host);
  report.device = escaped_field(facts.device);
  report.process = process_state({facts.pid, facts.start_time}, same_boot);
  report.state = static_cast<flight::State>(facts.state.load(std::memory_order_acquire));
  const std::int64_t died = facts.died_ns.load(std::memory_order_acquire);
  if (died != 0 && same_boot) report.ended_ns_ago = flight::monotonic_ns() - died;
  report.calls = calls_of(view, rank);
  for (const Lane lane : kAllLanes) {
    report.lanes[static_cast<std::size_t>(lane)] = look_at_lane(view, lane, rank, report.calls);
  }
  return report;
}

std::string_view name(ProcessState state) {
  switch (state) {
    case ProcessState::absent:
      return "absent";
    case ProcessState::alive:
      return "alive";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::ended:
      return "ended";
    case ProcessState::unknown:
      return "unknown";
  }
  return "unknown";
}

std::string_view name(flight::State state) {
  switch (state) {
    case flight::State::running:
      return "running";
    case flight::State::finished:
      return "left";
    case flight::State::aborted:
      return "aborted";
  }
  return "unknown";
}

std::string algorithm_of(const View& view, const Record& record) {
  const auto& names = view.header().algorithms;
  return record.algorithm < std::size(names) ? escaped_field(names[record.algorithm].text) : "?";
}

// "250 ms", "3.2 s", "7 min", "2 h".
std::string duration(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 1) return fmt::format("{} ms", ns / 1'000'000);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

std::string presence(const RankReport& rank) {
  std::string text(name(rank.process));
  if (rank.state != flight::State::running) text += fmt::format(", {}", name(rank.state));
  if (rank.ended_ns_ago) text += fmt::format(" {} ago", duration(*rank.ended_ns_ago));
  return text;
}

Json to_json(const Record& record, const View& view, std::int64_t now_ns) {
  Json call = Json::object(
      {{"number", flight::plain_number(static_cast<std::uint64_t>(record.call.number))},
       {"lane", kLaneNames[static_cast<std::size_t>(view.lane(record.call))]},
       {"call", view.text(record.call)},
       {"algorithm", algorithm_of(view, record)},
       {"bytes", record.bytes},
       {"stream", record.stream}});
  if (now_ns != 0) call.set("age_s", static_cast<double>(now_ns - record.enqueued_ns) / 1e9);
  return call;
}

}  // namespace

std::vector<OpenFile> find_flights(const std::string& target) {
  std::vector<OpenFile> found;
  if (target.find('/') != std::string::npos) {
    std::optional<OpenFile> file = OpenFile::open(target);
    if (!file) {
      throw InvalidArgument(fmt::format("dump: expected a flight file, but got '{}'", target));
    }
    found.push_back(std::move(*file));
    return found;
  }
  flight::Listing listing = flight::read_files();
  if (!listing.failure.empty()) {
    throw Error(fmt::format(
        "dump: failed to read the flight folder: {}; set GANTRY_FLIGHT_DIR to another one, as for "
        "the job",
        escape_control_characters(listing.failure)));
  }
  for (OpenFile& file : listing.files) {
    const View& view = file.view();
    bool matches = target.empty() || target == escaped_field(view.header().job);
    for (int rank = 0; rank < view.header().ranks; ++rank) {
      matches = matches || target == std::to_string(view.rank(rank).pid);
    }
    if (matches) found.push_back(std::move(file));
  }
  if (found.empty() && !target.empty()) {
    throw InvalidArgument(fmt::format(
        "dump: expected a job, a process or a file with a group of ranks, but found none of '{}' "
        "in {}",
        target, flight::folder()));
  }
  return found;
}

GroupReport look_at(const OpenFile& file) {
  const View& view = file.view();
  const flight::Header& header = view.header();
  const bool same_boot = escaped_field(header.boot) == boot_id();
  GroupReport report;
  report.path = escape_control_characters(file.path());
  report.job = escaped_field(header.job);
  report.group = escaped_field(header.group);
  report.created_ns = header.created_ns;
  for (int rank = 0; rank < header.ranks; ++rank) {
    report.ranks.push_back(look_at_rank(view, rank, same_boot));
  }
  report.now_ns = same_boot ? flight::monotonic_ns() : 0;
  report.diagnosis = diagnose(view, report.ranks);
  return report;
}

Json to_json(const GroupReport& report, const View& view) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks) {
    Json entry = Json::object({{"rank", rank.rank},
                               {"pid", rank.pid},
                               {"host", rank.host},
                               {"device", rank.device},
                               {"process", name(rank.process)},
                               {"state", name(rank.state)}});
    if (rank.ended_ns_ago) entry.set("ended_s_ago", static_cast<double>(*rank.ended_ns_ago) / 1e9);
    for (const Lane lane : kAllLanes) {
      const LaneReport& calls = rank.lane(lane);
      entry.set(kLaneNames[static_cast<std::size_t>(lane)],
                Json::object({{"enqueued", flight::plain_number(calls.enqueued)},
                              {"started", flight::plain_number(calls.progress.started)},
                              {"finished", flight::plain_number(calls.progress.finished)},
                              {"under_way", calls.progress.is_under_way()}}));
    }
    Json calls = Json::array();
    for (std::size_t i = 0; i < std::min(rank.calls.size(), kListedCalls); ++i) {
      calls.push_back(to_json(rank.calls[i], view, report.now_ns));
    }
    entry.set("calls", std::move(calls));
    ranks.push_back(std::move(entry));
  }
  return Json::object({{"file", report.path},
                       {"job", report.job},
                       {"group", report.group},
                       {"created_s", static_cast<double>(report.created_ns) / 1e9},
                       {"ranks", std::move(ranks)},
                       {"diagnosis", report.diagnosis}});
}

std::string describe_group(const GroupReport& report, const View& view) {
  std::string text = fmt::format("group {} of {} rank(s)", report.group, report.ranks.size());
  if (!report.job.empty()) text += fmt::format(", job {}", report.job);
  text += fmt::format("\n  {}\n", report.path);
  for (const RankReport& rank : report.ranks) {
    text += fmt::format("  rank {}: pid {}, {}", rank.rank, rank.pid, presence(rank));
    bool called = false;
    for (const Lane lane : kAllLanes) {
      const LaneReport& calls = rank.lane(lane);
      if (calls.enqueued == 0) continue;
      called = true;
      text += fmt::format("\n    {}: enqueued #{}", kLaneNames[static_cast<std::size_t>(lane)],
                          flight::plain_number(calls.enqueued));
      if (!calls.current) continue;
      const Record& record = *calls.current;
      text += fmt::format(", {} #{} {} by {}", calls.progress.is_under_way() ? "waits in" : "last",
                          flight::plain_number(static_cast<std::uint64_t>(record.call.number)),
                          view.text(record.call), algorithm_of(view, record));
      if (report.now_ns != 0) {
        text += fmt::format(", called {} ago", duration(report.now_ns - record.enqueued_ns));
      }
    }
    text += called ? "\n" : ", no calls\n";
  }
  for (const std::string& line : report.diagnosis) text += fmt::format("  => {}\n", line);
  return text;
}

}  // namespace gantry::launcher
