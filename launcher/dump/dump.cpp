#include "launcher/dump/dump.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"

namespace gantry::launcher {

using flight::OpenFile;
using flight::Queue;
using flight::Record;
using flight::View;

namespace {

constexpr Queue kAllQueues[] = {Queue::collective, Queue::send, Queue::recv};
constexpr const char* kQueueNames[] = {"collectives", "sends", "receives"};
// Calls of a rank in JSON.
constexpr std::size_t kListedCalls = 16;

std::string presence(const RankReport& rank) {
  std::string text(name(rank.process));
  if (rank.state != flight::State::running) text += fmt::format(", {}", name(rank.state));
  if (rank.ended_ns_ago) text += fmt::format(" {} ago", flight::duration_text(*rank.ended_ns_ago));
  return text;
}

Json to_json(const Record& record, const View& view, std::int64_t now_ns) {
  Json call = Json::object(
      {{"number", flight::plain_number(static_cast<std::uint64_t>(record.call.number))},
       {"lane", kQueueNames[static_cast<std::size_t>(view.queue(record.call))]},
       {"call", view.text(record)},
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
  GroupReport report = flight::report_group(file);
  report.diagnosis = diagnose(file.view(), report.ranks);
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
    for (const Queue queue : kAllQueues) {
      const QueueReport& calls = rank.queue(queue);
      entry.set(kQueueNames[static_cast<std::size_t>(queue)],
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
    for (const Queue queue : kAllQueues) {
      const QueueReport& calls = rank.queue(queue);
      if (calls.enqueued == 0) continue;
      called = true;
      text += fmt::format("\n    {}: enqueued #{}", kQueueNames[static_cast<std::size_t>(queue)],
                          flight::plain_number(calls.enqueued));
      if (!calls.current) continue;
      const Record& record = *calls.current;
      text += fmt::format(", {} #{} {} by {}", calls.progress.is_under_way() ? "waits in" : "last",
                          flight::plain_number(static_cast<std::uint64_t>(record.call.number)),
                          view.text(record), algorithm_of(view, record));
      if (report.now_ns != 0) {
        text += fmt::format(", called {} ago",
                            flight::duration_text(report.now_ns - record.enqueued_ns));
      }
    }
    text += called ? "\n" : ", no calls\n";
  }
  for (const std::string& line : report.diagnosis) text += fmt::format("  => {}\n", line);
  return text;
}

}  // namespace gantry::launcher
