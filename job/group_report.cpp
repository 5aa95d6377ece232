#include "job/group_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/processes/process_stamp.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::flight {
namespace {

constexpr Queue kAllQueues[] = {Queue::collective, Queue::send, Queue::recv};

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
  for (std::uint64_t back = 0; back < std::min<std::uint64_t>(newest, kRing); ++back) {
    const std::uint64_t ticket = newest - back;
    if (const auto record = view.ring(rank)[ticket % kRing].get(ticket)) {
      calls.push_back(*record);
    }
  }
  return calls;
}

QueueReport look_at_queue(const View& view, Queue queue, int rank,
                          const std::vector<Record>& calls) {
  QueueReport report;
  report.progress = view.words(rank).progress(queue);
  for (const Record& record : calls) {
    if (view.queue(record.call) != queue) continue;
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
  const Rank& facts = view.rank(rank);
  RankReport report;
  report.rank = rank;
  if (facts.job_rank != 0) report.job_rank = static_cast<int>(facts.job_rank - 1);
  report.pid = facts.pid;
  report.start_time = facts.start_time;
  report.host = escaped_field(facts.host);
  report.device = escaped_field(facts.device);
  report.uuid = escaped_field(facts.uuid);
  const std::int64_t reserved = facts.reserved_bytes.load(std::memory_order_acquire);
  const std::int64_t allocated = facts.allocated_bytes.load(std::memory_order_acquire);
  if (reserved != 0 || allocated != 0) {
    report.allocated_bytes = allocated;
    report.reserved_bytes = reserved;
  }
  report.process = process_state({facts.pid, facts.start_time}, same_boot);
  report.state = static_cast<State>(facts.state.load(std::memory_order_acquire));
  const std::int64_t died = facts.died_ns.load(std::memory_order_acquire);
  if (died != 0 && same_boot) report.ended_ns_ago = monotonic_ns() - died;
  report.calls = calls_of(view, rank);
  for (const Queue queue : kAllQueues) {
    report.queues[static_cast<std::size_t>(queue)] = look_at_queue(view, queue, rank, report.calls);
  }
  return report;
}

}  // namespace

GroupReport report_group(const OpenFile& file) {
  const View& view = file.view();
  const Header& header = view.header();
  const bool same_boot = escaped_field(header.boot) == boot_id();
  GroupReport report;
  report.path = escape_control_characters(file.path());
  report.job = escaped_field(header.job);
  report.group = escaped_field(header.group);
  report.created_ns = header.created_ns;
  for (int rank = 0; rank < header.ranks; ++rank) {
    report.ranks.push_back(look_at_rank(view, rank, same_boot));
  }
  report.now_ns = same_boot ? monotonic_ns() : 0;
  return report;
}

std::string algorithm_of(const View& view, const Record& record) {
  const auto& names = view.header().algorithms;
  return record.algorithm < std::size(names) ? escaped_field(names[record.algorithm].text) : "?";
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

std::string_view name(State state) {
  switch (state) {
    case State::running:
      return "running";
    case State::finished:
      return "left";
    case State::aborted:
      return "aborted";
  }
  return "unknown";
}

std::string duration_text(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 1) return fmt::format("{} ms", ns / 1'000'000);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

}  // namespace gantry::flight
