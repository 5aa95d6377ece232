#include "launcher/run/failures/stall_watch.hpp"

#include <functional>
#include <utility>

#include "job/group_report.hpp"
#include "launcher/dump/dump.hpp"

namespace gantry::launcher {

void StallWatch::look(const std::string& job, Clock::time_point now) {
  std::vector<std::uint64_t> progress;
  bool is_waiting = false;
  for (const flight::OpenFile& file : flight::read_files().files) {
    const GroupReport report = flight::report_group(file);
    if (report.job != job) continue;
    progress.push_back(std::hash<std::string>{}(report.path));
    for (const RankReport& rank : report.ranks) {
      for (const QueueReport& calls : rank.queues) {
        progress.insert(progress.end(),
                        {calls.enqueued, calls.progress.started, calls.progress.finished,
                         calls.progress.run, calls.progress.finished_run});
        is_waiting = is_waiting || (rank.is_alive() && calls.progress.is_under_way());
      }
    }
  }
  if (!is_waiting_ || progress != progress_) since_ = now;
  is_waiting_ = is_waiting;
  progress_ = std::move(progress);
}

void StallWatch::reset() {
  progress_.clear();
  is_waiting_ = false;
}

std::optional<StallWatch::Clock::time_point> StallWatch::since() const {
  if (!is_waiting_) return std::nullopt;
  return since_;
}

}  // namespace gantry::launcher
