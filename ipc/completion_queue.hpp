// Actions that wait for events and for other processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

namespace gantry::memory {

/// The interval between two polls: a sixteenth of the time waited so far, at least 5 us and at most
/// `longest`. Polling thus lengthens a wait by 6 % or by `longest`.
class PollBackoff {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr Clock::duration kShortest = std::chrono::microseconds(5);

  explicit PollBackoff(Clock::duration longest, Clock::time_point now = Clock::now())
      : longest_(longest), changed_(now) {}

  /// Starts again with the shortest interval: an entry was added or has completed.
  void restart(Clock::time_point now = Clock::now()) { changed_ = now; }
  /// Returns the time to sleep before the next poll.
  [[nodiscard]] Clock::duration interval(Clock::time_point now = Clock::now()) const {
    return std::clamp((now - changed_) / kDivisor, kShortest, longest_);
  }

 private:
  static constexpr int kDivisor = 16;

  const Clock::duration longest_;
  Clock::time_point changed_;
};

/// An action, and the condition that it waits for.
class Completion {
 public:
  Completion() = default;
  virtual ~Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  /// Returns true if the condition holds; it does not become false again.
  /// Throws: std::bad_alloc; the next round polls again.
  [[nodiscard]] virtual bool is_complete() = 0;
  virtual void perform() noexcept = 0;
};

/// Completions that a background thread polls, in the intervals of PollBackoff.
///
/// A round polls all entries. Then it performs those that are complete, and destroys them. The
/// thread begins no round once the process exits: Note [Background threads at exit].
/// Thread safety: every member may be called from any thread.
class CompletionQueue {
 public:
  using Entries = std::list<std::unique_ptr<Completion>>;

  /// `thread_name` has at most 15 characters.
  CompletionQueue(const char* thread_name, PollBackoff::Clock::duration longest_interval)
      : thread_name_(thread_name), longest_interval_(longest_interval) {}

  /// Starts the thread unless it runs. Throws: std::system_error.
  void start();
  /// Moves `entries` into the queue, whose thread runs.
  void add(Entries entries) noexcept;
  /// Performs one round; returns the number of entries performed. Waits for the end of a round that
  /// another thread began.
  std::size_t run_completed() noexcept;

 private:
  void run();

  const char* const thread_name_;
  const PollBackoff::Clock::duration longest_interval_;
  std::mutex round_mutex_;  ///< held in a round; locked before `mutex_`
  std::mutex mutex_;        ///< guards what follows; not held while entries are polled
  std::condition_variable changed_;
  bool has_thread_ = false;
  bool has_new_ = false;  ///< entries were added since the thread's last round
  Entries entries_;       ///< except the entries of the present round
};

}  // namespace gantry::memory
