#include "device/sim/streams/sim_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <gantry/core/log.hpp>

#include "core/processes/background_thread.hpp"
#include "device/sim/streams/sim_thread_state.hpp"

namespace gantry::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kTick{1};
constexpr int kAsleepTicks = 3;               // a task that sleeps for so long is put aside
constexpr std::chrono::seconds kBusyTime{1};  // and one that computes for so long
constexpr milliseconds kSpinTime{2};          // or so, if it may wait for peers by spinning
constexpr int kSettleLooks = 2500;
constexpr microseconds kSettleLook{200};

constexpr microseconds kShortestPause{50};
constexpr microseconds kLongestPause{1000};
constexpr int kStuckPauses = 4;

constexpr int kTurnsAtOnce = 64;  // before other threads may give turns

constexpr std::uint32_t kLook = 32;
constexpr std::uint32_t kVainLooks = 32 * kLook;

constexpr milliseconds kPace{5};
// Paces without a call, until tasks run. A host thread that computes may be about to call.
constexpr int kIdlePaces = 40;
constexpr int kIdlePacesShared = 2;
constexpr int kPacesOfSleep = 10;  // what a pace counts while the last caller does not compute

// As a GPU's launch queue, and below TaskQueue::kCapacity: a push never waits.
constexpr std::size_t kMostTasks = 1000;

}  // namespace

Schedule::Schedule(ScheduleChoice choice) : policy_(choice) {
  pace_ = start_background_thread("sim schedule", [this] { keep_pace(); });
}

Schedule::~Schedule() {
  close();
  pace_.join();
}

ScheduledQueue& Schedule::queue_of(const SimStream& stream) {
  std::size_t& index = stream.schedule_index;
  if (index == SIZE_MAX) {
    index = queues_.size();
    auto queue = std::make_unique<ScheduledQueue>();
    queue->stream = &stream;
    queue->index = index;
    queue->priority = policy_.draw();
    queues_.push_back(std::move(queue));
  }
  return *queues_[index];
}

std::uint64_t Schedule::submit(const SimStream& stream, TaskDependency after, KernelWaits waits,
                               const std::function<std::uint64_t()>& push) {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  note_call();
  ScheduledQueue& queue = queue_of(stream);
  while (!is_open_ && queue.tasks.size() >= kMostTasks) {
    const std::array first{ScheduleTarget{&stream, queue.tasks.front().ticket}};
    run_for(lock, first);
    // The task is done; its thread may still have to say so.
    if (queue.tasks.size() >= kMostTasks) changed_.wait_for(lock, kSettleLook);
  }
  std::uint64_t ticket = 0;
  {
    const SeenByThreadSanitizer seen;  // the submission is order that the program asked for
    ticket = push();
  }
  if (is_open_) return ticket;
  queue.tasks.push_back({.ticket = ticket, .number = ++submitted_, .after = after, .waits = waits});
  run_at_call(lock);
  return ticket;
}

void Schedule::force(std::span<const ScheduleTarget> targets) {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  run_for(lock, targets);
}

void Schedule::look(ScheduleTarget target) {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  note_call();
  if (!is_giving_turns_) reset_idle_turns();
  run_at_call(lock);
  note_look(lock, target, kLook);
}

void Schedule::glance(ScheduleTarget target) {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  note_look(lock, target, 1);
}

// After some vain looks the host may wait for the task: one more runs for it at each look.
void Schedule::note_look(Lock& lock, ScheduleTarget target, std::uint32_t weight) {
  if (is_open_ || target.stream->done(target.ticket)) return;
  ScheduledQueue& queue = queue_of(*target.stream);
  queue.looks += weight;
  if (queue.looks <= kVainLooks || is_giving_turns_) return;
  note_call();
  is_giving_turns_ = true;
  await_settled(lock);
  reset_idle_turns();
  const std::array targets{target};
  const bool is_stuck = queue.looks > 2 * kVainLooks;
  if (is_stuck) queue.looks = kVainLooks;  // tasks that poll have turns before the next such look
  if (ScheduledQueue* next = policy_.pick_for(queues_, targets, is_stuck)) give_turn(lock, *next);
  is_giving_turns_ = false;
  changed_.notify_all();
}

void Schedule::share() {
  const UnseenByThreadSanitizer unseen;
  const Lock lock(mutex_);
  is_shared_ = true;
}

void Schedule::close() {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  while (is_giving_turns_) changed_.wait(lock);
  if (is_open_) return;
  is_giving_turns_ = true;
  run_idle(lock);
  is_giving_turns_ = false;
  is_open_ = true;
  for (const auto& queue : queues_) queue->granted.notify_all();
  changed_.notify_all();
  ended_.notify_all();
}

void Schedule::record_order() {
  const UnseenByThreadSanitizer unseen;
  const Lock lock(mutex_);
  is_recording_ = true;
}

std::vector<Schedule::Step> Schedule::order() const {
  const UnseenByThreadSanitizer unseen;
  const Lock lock(mutex_);
  return order_;
}

bool Schedule::enter(const SimStream& stream) {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  ScheduledQueue& queue = queue_of(stream);
  queue.thread = this_thread_number();
  queue.granted.wait(lock, [&] { return is_open_ || queue.state == State::running; });
  queue.has_started = true;
  return !is_open_;
}

void Schedule::leave(const SimStream& stream) {
  const UnseenByThreadSanitizer unseen;
  const Lock lock(mutex_);
  ScheduledQueue& queue = queue_of(stream);
  if (!queue.tasks.empty()) queue.tasks.pop_front();
  queue.state = State::waiting;
  queue.looks = 0;
  end_turn(queue);
  reset_idle_turns();
}

bool Schedule::pause(const SimStream& stream) {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  if (is_open_) return false;
  ScheduledQueue& queue = queue_of(stream);
  queue.state = State::polling;
  ++queue.idle_turns;
  end_turn(queue);
  queue.granted.wait(lock, [&] { return is_open_ || queue.state == State::running; });
  queue.has_started = true;
  return true;
}

void Schedule::end_turn(ScheduledQueue& queue) {
  if (running_ == &queue) running_ = nullptr;
  turn_ended_.notify_one();
}

void Schedule::note_call() {
  ++calls_;
  last_caller_ = this_thread_number();
}

void Schedule::reset_idle_turns() {
  for (const auto& queue : queues_) queue->idle_turns = 0;
}

// Runs the first task of `queue` until it ends, pauses or is put aside.
void Schedule::give_turn(Lock& lock, ScheduledQueue& queue) {
  if (queue.state == State::waiting) {
    const ScheduledTask& task = queue.tasks.front();
    reset_idle_turns();
    if (is_recording_) {
      order_.push_back({queue.stream->device(), queue.index, task.ticket});
    }
    if (logging::enabled(logging::Level::trace)) {
      logging::write(logging::Level::trace, fmt::format("schedule: task {} of {} begins",
                                                        task.ticket, queue.stream->name()));
    }
  }
  queue.last_turn = ++turns_;
  queue.has_started = false;
  queue.state = State::running;
  running_ = &queue;
  queue.granted.notify_all();
  const auto has_ended = [&] { return running_ != &queue; };
  const std::chrono::nanoseconds most =
      queue.tasks.front().waits == KernelWaits::by_spinning ? kSpinTime : kBusyTime;
  int asleep = 0;
  std::chrono::nanoseconds begin{-1};
  while (!turn_ended_.wait_for(lock, kTick, has_ended)) {
    if (!queue.has_started) continue;
    const std::chrono::nanoseconds now = processor_time(queue.thread);
    if (begin.count() < 0) begin = now;
    asleep = state_of(queue.thread) == ThreadState::sleeps ? asleep + 1 : 0;
    if (asleep < kAsleepTicks && now - begin < most) continue;
    queue.state = State::aside;
    queue.is_busy = asleep < kAsleepTicks;
    running_ = nullptr;
  }
}

// Waits until no task that was put aside computes: the host may just have woken it.
void Schedule::await_settled(Lock& lock) {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    ScheduledQueue& queue = *queues_[i];
    for (int look = 0; queue.state == State::aside && !queue.is_busy; ++look) {
      if (state_of(queue.thread) == ThreadState::sleeps) break;
      queue.is_busy = look >= kSettleLooks;
      turn_ended_.wait_for(lock, kSettleLook);
    }
  }
}

// In a call that waits for nothing. Another thread that gives turns sees the new task, too.
void Schedule::run_at_call(Lock& lock) {
  if (is_open_ || is_giving_turns_) return;
  is_giving_turns_ = true;
  await_settled(lock);
  while (ScheduledQueue* queue = policy_.pick_at_call(queues_)) give_turn(lock, *queue);
  is_giving_turns_ = false;
  changed_.notify_all();
}

void Schedule::run_for(Lock& lock, std::span<const ScheduleTarget> targets) {
  const auto is_done = [](const ScheduleTarget& target) {
    return target.stream->done(target.ticket);
  };
  microseconds pause = kShortestPause;
  int pauses = 0;
  while (!is_open_ && !std::ranges::all_of(targets, is_done)) {
    note_call();
    if (is_giving_turns_) {
      changed_.wait(lock);
      continue;
    }
    is_giving_turns_ = true;
    bool can_go_on = true;
    for (int turn = 0; can_go_on && turn < kTurnsAtOnce; ++turn) {
      if (std::ranges::all_of(targets, is_done)) break;
      await_settled(lock);
      ScheduledQueue* const queue = policy_.pick_for(queues_, targets, pauses >= kStuckPauses);
      can_go_on = queue != nullptr;
      if (!can_go_on) break;
      if (queue->state == State::waiting) {
        pause = kShortestPause;
        pauses = 0;
      }
      give_turn(lock, *queue);
    }
    is_giving_turns_ = false;
    changed_.notify_all();
    if (can_go_on) continue;
    changed_.wait_for(lock, pause);
    pause = std::min(2 * pause, kLongestPause);
    ++pauses;
    reset_idle_turns();
  }
}

// Runs what can run, until a host thread calls.
void Schedule::run_idle(Lock& lock) {
  const std::uint64_t calls = calls_;
  await_settled(lock);
  reset_idle_turns();
  while (calls_ == calls) {
    ScheduledQueue* const queue = policy_.pick_any(queues_);
    if (queue == nullptr) return;
    give_turn(lock, *queue);
  }
}

void Schedule::keep_pace() {
  const UnseenByThreadSanitizer unseen;
  Lock lock(mutex_);
  std::uint64_t calls = 0;
  for (int idle = 0; !is_open_;) {
    ended_.wait_for(lock, kPace);
    if (calls_ != calls || is_giving_turns_ || is_open_) {
      calls = calls_;
      idle = 0;
      continue;
    }
    idle += state_of(last_caller_) == ThreadState::computes ? 1 : kPacesOfSleep;
    if (idle < kPacesOfSleep * (is_shared_ ? kIdlePacesShared : kIdlePaces)) continue;
    is_giving_turns_ = true;
    run_idle(lock);
    is_giving_turns_ = false;
    changed_.notify_all();
  }
}

}  // namespace gantry::sim
