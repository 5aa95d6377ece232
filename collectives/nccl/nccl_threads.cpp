#include "collectives/nccl/nccl_threads.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include <gantry/core/log.hpp>

#include "core/processes/background_thread.hpp"
#include "device/drivers/background_calls.hpp"

namespace gantry {

namespace {

// An exit waits no longer: a call may wait for a graph that the program never destroys.
constexpr auto kExitTimeout = std::chrono::seconds(5);

void run(const std::function<void()>& body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    logging::warn(fmt::format("thread of NCCL: {}", error.what()));
  } catch (...) {
    logging::warn("thread of NCCL: unknown error");
  }
}

}  // namespace

struct NcclThreads::State {
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

NcclThreads::NcclThreads() : state_(new State(nullptr)) {}

NcclThreads& NcclThreads::instance() {
  static auto& threads = *new NcclThreads;
  return threads;
}

NcclThreads::State& NcclThreads::state() {
  State* known = state_.load(std::memory_order_acquire);
  if (known->owner == getpid()) return *known;
  auto* mine = new State(known);
  if (state_.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;
  return *known;
}

bool NcclThreads::start(const char* name, std::function<void()> body) noexcept {
  if (background_calls().is_closed()) return false;
  State* counted = nullptr;
  try {
    static const int registered = std::atexit([] { (void)instance().await(kExitTimeout); });
    (void)registered;
    State& mine = state();
    mine.begin();
    counted = &mine;
    start_background_thread(name, [&mine, body = std::move(body)]() mutable {
      run(body);
      body = nullptr;  // what it holds ends before the process does
      mine.end();
    }).detach();
    return true;
  } catch (const std::exception& error) {
    if (counted != nullptr) counted->end();
    logging::debug(fmt::format("thread of NCCL: {}", error.what()));
    return false;
  }
}

bool NcclThreads::await(std::chrono::milliseconds timeout) noexcept {
  try {
    State& mine = state();
    std::unique_lock lock(mine.mutex);
    return mine.changed.wait_for(lock, timeout, [&] { return mine.count == 0; });
  } catch (
      const std::exception& error) {  // no memory for the state of a child, which has no threads
    logging::debug(fmt::format("thread of NCCL: {}", error.what()));
    return true;
  }
}

}  // namespace gantry
