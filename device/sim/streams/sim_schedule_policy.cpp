#include "device/sim/streams/sim_schedule_policy.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "core/env/settings.hpp"

namespace gantry::sim {

namespace {

using Kind = ScheduleChoice::Kind;
using State = ScheduledQueue::State;

// Turns of a polling task before other tasks are tried. A task may poll several words in turn.
constexpr std::uint32_t kMostIdleTurns = 8;

bool is_fresh(const ScheduledQueue& queue) {
  return queue.state == State::waiting && queue.is_permitted();
}

bool may_poll(const ScheduledQueue& queue) {
  return queue.state == State::polling && queue.idle_turns < kMostIdleTurns;
}

// Of the polling tasks the one whose last turn was longest ago.
ScheduledQueue* pick_polling(const ScheduledQueues& queues) {
  ScheduledQueue* found = nullptr;
  for (const auto& queue : queues) {
    if (!may_poll(*queue)) continue;
    if (found == nullptr || queue->last_turn < found->last_turn) found = queue.get();
  }
  return found;
}

// Marks tasks up to `target` and all that they wait for.
void mark_needed(const ScheduledQueues& queues, std::vector<std::uint64_t>& needed,
                 std::vector<ScheduleTarget> open) {
  while (!open.empty()) {
    const ScheduleTarget target = open.back();
    open.pop_back();
    for (const auto& queue : queues) {
      if (queue->stream != target.stream) continue;
      std::uint64_t& last = needed[queue->index];
      for (const ScheduledTask& task : queue->tasks) {
        if (task.ticket > target.ticket) break;
        if (task.ticket > last && task.after.stream != nullptr) {
          open.push_back({task.after.stream, task.after.ticket});
        }
      }
      last = std::max(last, target.ticket);
    }
  }
}

}  // namespace

std::optional<ScheduleChoice> read_schedule_choice() {
  const std::string value = env::kSimSchedule.text();
  if (value.empty()) return std::nullopt;
  if (value == "earliest") return ScheduleChoice{.kind = Kind::earliest};
  if (value == "latest") return ScheduleChoice{.kind = Kind::latest};
  env::kSimSchedule.check();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t seed = env::parse_int(value, env::kSimSchedule.name(), 0, kMost);
  return ScheduleChoice{.kind = Kind::random, .seed = static_cast<std::uint64_t>(seed)};
}

bool ScheduledQueue::is_permitted() const {
  if (tasks.empty()) return false;
  const TaskDependency& after = tasks.front().after;
  return after.stream == nullptr || after.stream->done(after.ticket);
}

bool ScheduledQueue::is_waiting_for_peers() const {
  if (state == State::polling) return true;
  return state == State::aside && !tasks.empty() && tasks.front().waits == KernelWaits::by_spinning;
}

SchedulePolicy::SchedulePolicy(ScheduleChoice choice) : choice_(choice), state_(choice.seed) {
  constexpr std::uint64_t kEagerness[] = {0, 32, 128, 224};
  const std::uint64_t drawn = draw();
  eagerness_ = kEagerness[drawn % 4];
  follows_priorities_ = (drawn / 4) % 2 == 0;
}

// SplitMix64 (Steele, Lea and Flood 2014).
std::uint64_t SchedulePolicy::draw() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

ScheduledQueue* SchedulePolicy::pick_fresh(const ScheduledQueues& queues, const Needed* needed) {
  ScheduledQueue* found = nullptr;
  for (const auto& queue : queues) {
    if (!is_fresh(*queue)) continue;
    const ScheduledTask& task = queue->tasks.front();
    if (needed != nullptr && task.ticket > (*needed)[queue->index]) continue;
    const bool is_better = found == nullptr || (choice_.kind == Kind::earliest) ==
                                                   (task.number < found->tasks.front().number);
    if (is_better) found = queue.get();
  }
  return found;
}

// Priority schedules find bugs of few ordered steps with high probability: Burckhardt, Kothari,
// Musuvathi and Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees", 2010.
ScheduledQueue* SchedulePolicy::pick_random(const ScheduledQueues& queues, const Needed* needed) {
  std::vector<ScheduledQueue*> candidates;
  for (const auto& queue : queues) {
    if (may_poll(*queue)) candidates.push_back(queue.get());
    if (!is_fresh(*queue)) continue;
    if (needed != nullptr && queue->tasks.front().ticket > (*needed)[queue->index]) continue;
    candidates.push_back(queue.get());
  }
  if (candidates.empty()) return nullptr;
  const std::uint64_t drawn = draw();
  ScheduledQueue* found = candidates[(drawn >> 8) % candidates.size()];
  if (!follows_priorities_) return found;
  for (ScheduledQueue* queue : candidates) {
    if (queue->priority > found->priority) found = queue;
  }
  // A polling task must not keep its peers from running.
  if (found->state == State::polling || drawn % 16 == 0) found->priority = draw();
  return found;
}

ScheduledQueue* SchedulePolicy::pick_at_call(const ScheduledQueues& queues) {
  switch (choice_.kind) {
    case Kind::latest:
      return nullptr;
    case Kind::earliest:
      if (ScheduledQueue* queue = pick_fresh(queues, nullptr)) return queue;
      return pick_polling(queues);
    case Kind::random:
      return draw() % 256 < eagerness_ ? pick_random(queues, nullptr) : nullptr;
  }
  return nullptr;
}

ScheduledQueue* SchedulePolicy::pick_any(const ScheduledQueues& queues) {
  if (choice_.kind == Kind::random) return pick_random(queues, nullptr);
  if (ScheduledQueue* queue = pick_fresh(queues, nullptr)) return queue;
  return pick_polling(queues);
}

ScheduledQueue* SchedulePolicy::pick_for(const ScheduledQueues& queues,
                                         std::span<const ScheduleTarget> targets, bool is_stuck) {
  Needed needed(queues.size(), 0);
  mark_needed(queues, needed, {targets.begin(), targets.end()});
  if (choice_.kind == Kind::random) {
    const bool is_narrow = draw() % 2 == 0;
    ScheduledQueue* queue = pick_random(queues, is_narrow ? &needed : nullptr);
    return queue != nullptr || !is_narrow ? queue : pick_random(queues, nullptr);
  }
  if (ScheduledQueue* queue = pick_fresh(queues, &needed)) return queue;
  // Tasks that poll may wait for tasks that nobody needs yet.
  if (is_stuck) {
    if (ScheduledQueue* queue = pick_fresh(queues, nullptr)) return queue;
  }
  if (ScheduledQueue* queue = pick_polling(queues)) return queue;
  if (is_stuck) return nullptr;
  const auto waits = [](const auto& queue) { return queue->is_waiting_for_peers(); };
  if (std::ranges::none_of(queues, waits)) return nullptr;
  std::vector<ScheduleTarget> peers;
  for (const auto& queue : queues) {
    for (const ScheduledTask& task : queue->tasks) {
      if (task.waits != KernelWaits::never) peers.push_back({queue->stream, task.ticket});
    }
  }
  mark_needed(queues, needed, std::move(peers));
  return pick_fresh(queues, &needed);
}

}  // namespace gantry::sim
