#include "core/trace_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace gantry::trace {

constinit std::atomic<bool> log_is_on{false};
constinit thread_local std::string_view Label::current;
constinit thread_local const Submission* SubmittedTogether::current = nullptr;

TraceLog& TraceLog::instance() {
  static auto& log = *new TraceLog();
  return log;
}

bool TraceLog::begin(std::size_t limit) {
  const std::lock_guard lock(mutex_);
  if (is_on()) return false;
  limit_ = limit;
  begin_ns_ = now_ns();
  recorded_ = {};
  submissions_.clear();
  log_is_on.store(true, std::memory_order_relaxed);
  return true;
}

void TraceLog::add(TraceEvent&& event) noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_on()) return;
  if (recorded_.events.size() >= limit_) {
    ++recorded_.dropped;
    return;
  }
  if (const std::int64_t early = begin_ns_ - event.begin_ns; early > 0) {
    event.begin_ns += early;
    event.duration_ns = std::max<std::int64_t>(event.duration_ns - early, 0);
  }
  try {
    recorded_.events.push_back(std::move(event));
  } catch (...) {
    ++recorded_.dropped;
  }
}

void TraceLog::add_submission(std::uint32_t call, Submission submission) noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_on() || submissions_.size() >= limit_) return;
  try {
    submissions_.emplace(call, submission);
  } catch (...) {  // without host memory the submission stays unknown
  }
}

void TraceLog::count_dropped(std::uint64_t events) noexcept {
  const std::lock_guard lock(mutex_);
  recorded_.dropped += events;
}

Recorded TraceLog::end() {
  const std::lock_guard lock(mutex_);
  log_is_on.store(false, std::memory_order_relaxed);
  for (TraceEvent& event : recorded_.events) {
    if (event.call == 0) continue;
    const auto known = submissions_.find(event.call);
    if (known != submissions_.end()) event.submission = known->second;
  }
  submissions_ = {};
  return std::exchange(recorded_, {});
}

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Track this_thread_track() noexcept { return {.number = static_cast<std::uint64_t>(::gettid())}; }

Submission submit_now() noexcept {
  if (!is_on()) return {};
  return {.thread = this_thread_track().number, .at_ns = now_ns()};
}

std::function<void()> timed_task(std::function<void()> task, Track track,
                                 std::string_view fallback) {
  if (!is_on()) return task;
  const std::string_view name = Label::current.empty() ? fallback : Label::current;
  return [task = std::move(task), track, name = std::string(name), submitted = submit_now()] {
    const Submission* const together = SubmittedTogether::current;
    const std::int64_t begin = now_ns();
    task();
    TraceLog::instance().add({.name = name,
                              .category = "kernel",
                              .track = track,
                              .begin_ns = begin,
                              .duration_ns = now_ns() - begin,
                              .submission = together != nullptr ? *together : submitted});
  };
}

}  // namespace gantry::trace
