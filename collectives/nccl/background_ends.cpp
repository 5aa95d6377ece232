#include "collectives/nccl/background_ends.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include <gantry/core/log.hpp>

#include "core/processes/background_thread.hpp"

namespace gantry {

namespace {

// An exit waits no longer: an end may wait for a graph that the program never destroys.
constexpr auto kExitTimeout = std::chrono::seconds(5);

void run(const std::function<void()>& end) noexcept {
  try {
    end();
  } catch (const std::exception& error) {
    logging::warn(fmt::format("ending NCCL: {}", error.what()));
  } catch (...) {
    logging::warn("ending NCCL: unknown error");
  }
}

}  // namespace

struct BackgroundEnds::State {
  explicit State(State* of_parent) : of_parent(of_parent) {}

  void begin() {
    const std::lock_guard lock(mutex);
    ++count;
  }
  void end() noexcept {
    const std::lock_guard lock(mutex);
    --count;
    changed.notify_all();
  }

  const pid_t owner = getpid();
  State* const of_parent;  // kept: its mutex may be locked forever
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

BackgroundEnds::BackgroundEnds() : state_(new State(nullptr)) {}

BackgroundEnds& BackgroundEnds::instance() {
  static auto& ends = *new BackgroundEnds;
  return ends;
}

BackgroundEnds::State& BackgroundEnds::state() {
  State* known = state_.load(std::memory_order_acquire);
  if (known->owner == getpid()) return *known;
  auto* mine = new State(known);
  if (state_.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;
  return *known;
}

bool BackgroundEnds::start(const char* name, std::function<void()> end) noexcept {
  State* counted = nullptr;
  try {
    static const int registered = std::atexit([] { (void)instance().await(kExitTimeout); });
    (void)registered;
    State& mine = state();
    mine.begin();
    counted = &mine;
    start_background_thread(name, [&mine, end = std::move(end)]() mutable {
      run(end);
      end = nullptr;  // what it holds ends before the process does
      mine.end();
    }).detach();
    return true;
  } catch (const std::exception& error) {
    if (counted != nullptr) counted->end();
    logging::debug(fmt::format("ending NCCL: {}", error.what()));
    return false;
  }
}

bool BackgroundEnds::await(std::chrono::milliseconds timeout) noexcept {
  try {
    State& mine = state();
    std::unique_lock lock(mine.mutex);
    return mine.changed.wait_for(lock, timeout, [&] { return mine.count == 0; });
  } catch (const std::exception& error) {  // no memory for the state of a child, which has no ends
    logging::debug(fmt::format("ending NCCL: {}", error.what()));
    return true;
  }
}

}  // namespace gantry
