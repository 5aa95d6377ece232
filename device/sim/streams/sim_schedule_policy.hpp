// Which task runs next under GANTRY_SIM_SCHEDULE.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "device/sim/streams/sim_stream.hpp"

namespace gantry::sim {

/// The value of GANTRY_SIM_SCHEDULE.
struct ScheduleChoice {
  enum class Kind : std::uint8_t { earliest, latest, random };
  Kind kind = Kind::latest;
  std::uint64_t seed = 0;  ///< of random
};

/// Reads GANTRY_SIM_SCHEDULE; none if it is unset or empty.
/// Throws: InvalidArgument unless it is earliest, latest or a seed.
[[nodiscard]] std::optional<ScheduleChoice> read_schedule_choice();

/// A task that was submitted and is not done.
struct ScheduledTask {
  std::uint64_t ticket = 0;
  std::uint64_t number = 0;  ///< among all tasks of the machine, in the order of submission
  TaskDependency after;
  KernelWaits waits = KernelWaits::never;
};

/// The tasks of one stream.
struct ScheduledQueue {
  /// The state of the first task.
  enum class State : std::uint8_t {
    waiting,  ///< it did not begin
    running,  ///< it has the turn
    polling,  ///< it waits for peers and gave its turn back
    aside,    ///< it sleeps or computes for long, and runs beside the schedule
  };

  const SimStream* stream = nullptr;
  std::deque<ScheduledTask> tasks;
  State state = State::waiting;
  std::condition_variable granted;  ///< the thread of the stream sleeps here
  pid_t thread = 0;
  bool has_started = false;  ///< that thread has noticed its turn
  bool is_busy = false;      ///< aside, because it computes for long

  std::size_t index = 0;
  std::uint64_t last_turn = 0;
  std::uint32_t idle_turns = 0;  ///< of a polling task, since a task began or ended anywhere
  std::uint32_t looks = 0;       ///< unsuccessful queries
  std::uint64_t priority = 0;    ///< for random schedules

  /// The first task did not begin, and nothing that it waits for is left.
  [[nodiscard]] bool is_permitted() const;
  /// The first task began, and waits for peers as far as the schedule knows.
  [[nodiscard]] bool is_waiting_for_peers() const;
};
using ScheduledQueues = std::vector<std::unique_ptr<ScheduledQueue>>;

/// Tasks up to a ticket of a stream.
struct ScheduleTarget {
  const SimStream* stream = nullptr;
  std::uint64_t ticket = 0;
};

/// Note [Schedules]
/// `earliest` runs a task as soon as its dependencies are complete: mostly in the call that submits
/// it. `latest` runs a task only when the host waits for it or for a later task; of several such
/// tasks it runs the last submitted. With a seed, random numbers decide whether a call runs tasks,
/// and which. A task that polls its peers yields its turn, so other tasks continue, and polls again
/// in its next turn. A task that may wait by spinning yields nothing, so it is put aside after some
/// milliseconds. `latest` runs other tasks only if the needed ones cannot proceed without them.
///
/// Thread safety: none; the schedule's lock protects it.
class SchedulePolicy {
 public:
  explicit SchedulePolicy(ScheduleChoice choice);

  /// The queue whose first task runs in a call that waits for nothing; nullptr: the call returns.
  [[nodiscard]] ScheduledQueue* pick_at_call(const ScheduledQueues& queues);
  /// The queue whose first task runs because the host waits for `targets`; nullptr if none can.
  /// `is_stuck`: that was so for a while.
  [[nodiscard]] ScheduledQueue* pick_for(const ScheduledQueues& queues,
                                         std::span<const ScheduleTarget> targets, bool is_stuck);
  /// The queue whose first task runs if nobody waits; nullptr if none can.
  [[nodiscard]] ScheduledQueue* pick_any(const ScheduledQueues& queues);

  /// A priority for a new queue.
  [[nodiscard]] std::uint64_t draw();

 private:
  using Needed = std::vector<std::uint64_t>;  ///< of each queue, the last ticket; 0: none

  [[nodiscard]] ScheduledQueue* pick_fresh(const ScheduledQueues& queues, const Needed* needed);
  [[nodiscard]] ScheduledQueue* pick_random(const ScheduledQueues& queues, const Needed* needed);

  const ScheduleChoice choice_;
  std::uint64_t state_;      ///< of the random numbers
  std::uint64_t eagerness_;  ///< of 256 calls, how many run a task
  bool follows_priorities_;  ///< a random schedule that lets some streams starve
};

}  // namespace gantry::sim
