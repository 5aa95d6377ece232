// Runs the tasks of a simulated machine in a chosen order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "device/sim/streams/sim_schedule_policy.hpp"

namespace gantry::sim {

/// The order in which one machine's tasks run under GANTRY_SIM_SCHEDULE; see Note [Schedules].
///
/// The threads of the streams still run the tasks, but one at a time, and only while a host thread
/// is in a call that runs tasks. So a program with one host thread runs the same way each time.
/// Three kinds of tasks cannot be had at any time: a task that polls its peers gives its turn back
/// (pause_task); a task that sleeps, as a host function that waits for the program, is put aside
/// and runs beside the others; so is one that computes for a second. A thread of the schedule runs
/// tasks while no host thread calls the driver for a while, so a program that watches memory goes
/// on, and so do other processes.
///
/// Thread safety: every member may be called from any thread.
class Schedule {
 public:
  explicit Schedule(ScheduleChoice choice);
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// A task as in the order of the schedule.
  struct Step {
    int device;
    std::uint64_t stream;  ///< in the order of the first tasks
    std::uint64_t ticket;
    bool operator==(const Step&) const = default;
  };

  // Host threads
  /// Calls `push`, which enqueues a task of `stream` and returns its ticket, then runs tasks.
  std::uint64_t submit(const SimStream& stream, TaskDependency after, KernelWaits waits,
                       const std::function<std::uint64_t()>& push);
  /// Runs tasks until all targets are done.
  void force(std::span<const ScheduleTarget> targets);
  /// The host looks whether the task is done; runs tasks. After some vain looks the task is needed.
  void look(ScheduleTarget target);
  /// As look() for one of many looks at once: it runs tasks after more of them.
  void glance(ScheduleTarget target);
  /// Other processes may wait for this one's tasks from now on.
  void share();
  /// Runs what can run; later tasks run unscheduled.
  void close();

  /// Records the order from now on, for tests.
  void record_order();
  /// The order since record_order().
  [[nodiscard]] std::vector<Step> order() const;

  // Threads of streams
  /// Sleeps until the task may begin. False if it runs unscheduled.
  bool enter(const SimStream& stream);
  /// The first task of `stream` is done.
  void leave(const SimStream& stream);
  /// The running task waits for peers: others may run. False if it runs unscheduled.
  bool pause(const SimStream& stream);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using State = ScheduledQueue::State;

  [[nodiscard]] ScheduledQueue& queue_of(const SimStream& stream);
  void run_at_call(Lock& lock);
  void run_for(Lock& lock, std::span<const ScheduleTarget> targets);
  void run_idle(Lock& lock);
  void note_look(Lock& lock, ScheduleTarget target, std::uint32_t weight);
  void give_turn(Lock& lock, ScheduledQueue& queue);
  void await_settled(Lock& lock);
  void end_turn(ScheduledQueue& queue);
  void reset_idle_turns();
  void note_call();
  void keep_pace();

  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;  ///< the thread that gives turns sleeps here
  std::condition_variable changed_;     ///< and threads that will give the next ones
  SchedulePolicy policy_;
  ScheduledQueues queues_;
  ScheduledQueue* running_ = nullptr;
  bool is_giving_turns_ = false;  ///< a thread is in the section that gives turns
  bool is_open_ = false;          ///< after close()
  bool is_shared_ = false;
  bool is_recording_ = false;
  std::uint64_t submitted_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t calls_ = 0;  ///< by host threads
  pid_t last_caller_ = 0;
  std::vector<Step> order_;

  std::condition_variable ended_;  ///< the pace thread sleeps here
  std::thread pace_;
};

}  // namespace gantry::sim
