#include "ipc/completion_queue.hpp"

#include <sys/prctl.h>

#include <exception>
#include <utility>

#include "core/processes/background_thread.hpp"
#include "device/drivers/background_calls.hpp"

namespace gantry::memory {
namespace {

constexpr unsigned long kTimerSlackNs = 1000;

bool is_complete(Completion& completion) noexcept {
  try {
    return completion.is_complete();
  } catch (const std::exception&) {
    return false;  // out of host memory
  }
}

}  // namespace

void CompletionQueue::start() {
  const std::lock_guard lock(mutex_);
  if (has_thread_) return;
  start_background_thread(thread_name_, [this] { run(); }).detach();
  has_thread_ = true;
}

void CompletionQueue::add(Entries entries) noexcept {
  {
    const std::lock_guard lock(mutex_);
    entries_.splice(entries_.end(), entries);
    has_new_ = true;
  }
  changed_.notify_one();
}

std::size_t CompletionQueue::run_completed() noexcept {
  const std::lock_guard round(round_mutex_);
  Entries polled;
  {
    const std::lock_guard lock(mutex_);
    polled.swap(entries_);
  }
  Entries completed;
  for (auto next = polled.begin(); next != polled.end();) {
    const auto entry = next++;
    if (is_complete(**entry)) completed.splice(completed.end(), polled, entry);
  }
  for (const auto& entry : completed) entry->perform();
  {
    const std::lock_guard lock(mutex_);
    entries_.splice(entries_.begin(), polled);
  }
  changed_.notify_one();
  return completed.size();
}

void CompletionQueue::run() {
  // By default the kernel lengthens every sleep by 50 us.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
  PollBackoff backoff(longest_interval_);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !entries_.empty(); });
      changed_.wait_for(lock, backoff.interval(), [this] { return has_new_; });
      if (std::exchange(has_new_, false)) backoff.restart();
    }
    const ExitLock::Shared held(background_calls());
    if (!held) return;
    if (run_completed() > 0) backoff.restart();
  }
}

}  // namespace gantry::memory
