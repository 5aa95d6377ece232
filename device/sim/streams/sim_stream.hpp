// A stream: one thread that runs a FIFO of tasks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "device/sim/streams/sim_launch.hpp"
#include "device/sim/streams/sim_queue.hpp"

namespace gantry::sim {

class CaptureSession;
class Schedule;
class SimStream;

/// A task that another one comes behind, on a stream of its own; none if there is no stream.
struct TaskDependency {
  const SimStream* stream = nullptr;
  std::uint64_t ticket = 0;  ///< of a mark
};

/// True on the thread of a stream, that is inside a task.
[[nodiscard]] bool on_stream_thread();

/// A stream of one device. Its thread starts with the first task and ends with stop().
///
/// Tasks carry tickets, counted from 1. A stream is never freed while its driver lives: events keep
/// naming its tickets, and a destroyed stream is handed out again by create_stream.
/// Thread safety: every member may be called from any thread.
class SimStream {
 public:
  /// How a task is treated.
  struct Options {
    bool always = false;  ///< runs also after a failure: records and waits
    bool mark = false;    ///< acquire(ticket) may be asked for it
    /// Its end depends on work of other ranks or processes, which may not be submitted yet.
    KernelWaits waits = KernelWaits::never;
    TaskDependency after{};  ///< the task begins behind it
  };

  /// `schedule` is null if tasks run as soon as they can.
  SimStream(int device, int number, Schedule* schedule);
  ~SimStream();
  SimStream(const SimStream&) = delete;
  SimStream& operator=(const SimStream&) = delete;

  [[nodiscard]] int device() const { return device_; }
  /// Its number among the device's streams; 0: the default stream.
  [[nodiscard]] int number() const { return number_; }
  /// "stream 3 of cuda:1" or "the default stream of cuda:1".
  [[nodiscard]] std::string name() const;

  /// Appends a task and returns its ticket.
  std::uint64_t submit(Task task, Options options);
  std::uint64_t submit(Task task) { return submit(std::move(task), Options{}); }

  /// Ticket of the last task submitted so far.
  [[nodiscard]] std::uint64_t submitted() const { return queue_.pushed(); }
  /// True if the task is done; orders nothing.
  [[nodiscard]] bool done(std::uint64_t ticket) const {
    return completed_.load(std::memory_order_relaxed) >= ticket;
  }
  /// Tells the schedule, if there is one, that the host is about to ask done(ticket).
  void look(std::uint64_t ticket) const;
  /// As look(), for one of many looks at once.
  void glance(std::uint64_t ticket) const;
  /// Sleeps until the task is done; orders nothing.
  void wait(std::uint64_t ticket) const;
  /// Orders the caller after the task of a mark, which must be done.
  void acquire(std::uint64_t ticket) const;
  /// Sleeps until everything submitted so far is done and orders the caller after it.
  void drain() const;
  /// True if everything submitted so far is done; then orders the caller after it.
  [[nodiscard]] bool query() const;
  /// As query(), for one of many looks at once. False for a stream that failed.
  [[nodiscard]] bool is_idle() const;

  /// True while a task that waits for peers is not done.
  [[nodiscard]] bool is_held_by_peers() const {
    return held_by_peers_.load(std::memory_order_relaxed) != 0;
  }
  /// Waits of a task that comes behind what the stream holds now.
  [[nodiscard]] KernelWaits waits() const {
    return is_held_by_peers() ? KernelWaits::for_peers : KernelWaits::never;
  }

  /// Rethrows the sticky error, once; tasks submitted until now stay dropped.
  void rethrow_error() { rethrow_error_before(UINT64_MAX); }
  /// As rethrow_error, but leaves an error alone that arose behind task `ticket`.
  void rethrow_error_before(std::uint64_t ticket);
  /// True while an error that arose before task `ticket` waits to be reported.
  [[nodiscard]] bool failed_before(std::uint64_t ticket) const;
  /// Forgets the sticky error.
  void clear_error() noexcept;

  /// Runs what is queued, then ends the thread; no task may follow.
  void stop();

  /// Number of this use of the object; see Driver::stream_identity.
  std::atomic<std::uint64_t> identity{0};

  /// The capture that this stream takes part in, or nullptr. Set under the capture table's lock.
  std::atomic<CaptureSession*> capture{nullptr};

  /// The schedule's own, guarded by its lock.
  mutable std::size_t schedule_index = SIZE_MAX;

 private:
  struct Item {
    Task body;
    Options options;
    bool last = false;
  };
  enum : int { kHealthy, kFailed, kReporting };

  static constexpr std::size_t kMarks = 256;

  void start();
  void sleep_until(std::uint64_t ticket) const;
  void run();
  void execute(Item& item, std::uint64_t ticket);
  [[nodiscard]] std::exception_ptr take_error(std::uint64_t before);

  const int device_;
  const int number_;
  Schedule* const schedule_;
  std::once_flag started_;
  std::atomic<bool> running_{false};
  std::thread thread_;  ///< joined by stop(); a process may exit while it runs, as with a GPU
  TaskQueue<Item> queue_;

  mutable std::atomic<std::uint32_t> waiters_{0};
  std::atomic<std::uint32_t> held_by_peers_{0};
  alignas(64) std::atomic<std::uint64_t> completed_{0};
  /// Mark `t` is released in slot t % kMarks. A thread that waits for it is ordered after the tasks
  /// before it and no later ones.
  std::array<std::atomic<std::uint64_t>, kMarks> marks_{};

  std::atomic<int> state_{kHealthy};
  std::atomic<std::uint64_t> failed_ticket_{0};
  std::atomic<std::uint64_t> dropped_until_{0};
  std::exception_ptr error_;  ///< the thread's while kHealthy, the reporter's while kReporting
};

}  // namespace gantry::sim
