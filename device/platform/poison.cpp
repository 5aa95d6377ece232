#include "device/platform/poison.hpp"

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace gantry {
namespace {

struct PoisonTask {
  void (*act)(void*, std::size_t) = nullptr;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Tasks are pooled, because a failed stream drops its queued tasks without running them.
struct PoisonTasks {
  std::mutex mutex;
  std::deque<PoisonTask> all;
  std::vector<PoisonTask*> spare;
};

PoisonTasks& tasks() {
  static auto& instance = *new PoisonTasks();
  return instance;
}

PoisonTask* take_task() {
  const std::lock_guard lock(tasks().mutex);
  if (tasks().spare.empty()) return &tasks().all.emplace_back();
  PoisonTask* task = tasks().spare.back();
  tasks().spare.pop_back();
  return task;
}

void recycle(PoisonTask* task) {
  const std::lock_guard lock(tasks().mutex);
  tasks().spare.push_back(task);
}

// Waits until all queued tasks have run. The wait has a limit, because failed streams drop tasks.
void await_queued() {
  for (int tries = 0; tries < 1000; ++tries) {
    {
      const std::lock_guard lock(tasks().mutex);
      if (tasks().spare.size() == tasks().all.size()) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void run(void* argument) {
  auto* task = static_cast<PoisonTask*>(argument);
  task->act(task->data, task->bytes);
  recycle(task);
}

}  // namespace

void act_in_order(void (*act)(void*, std::size_t), void* data, std::size_t bytes,
                  NativeStream stream) noexcept {
  bool captured = false;
  try {
    captured = driver().is_capturing(stream);
  } catch (...) {
    // Nothing may stay forbidden by accident.
    if (act == unpoison_now) act(data, bytes);
    return;
  }
  if (captured) {
    // A captured host function would run at every launch of the graph, but a task runs once. Blocks
    // that graphs free are not poisoned: the next launch writes to them again.
    if (act == unpoison_now) {
      await_queued();
      act(data, bytes);
    }
    return;
  }
  PoisonTask* task = take_task();
  *task = {act, data, bytes};
  try {
    driver().launch_host_function(stream, run, task);
  } catch (...) {
    recycle(task);
    if (act == unpoison_now) act(data, bytes);
  }
}

}  // namespace gantry
