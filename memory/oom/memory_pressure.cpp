#include "memory/oom/memory_pressure.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/memory/oom_handler.hpp>

#include "core/exception_text.hpp"
#include "memory/oom/transfers.hpp"
#include "memory/policy/active_pool.hpp"

namespace gantry::memory {

constinit thread_local Transfers::Own Transfers::own_;

MemoryPressureCallbacks& MemoryPressureCallbacks::instance() {
  static auto& callbacks = *new MemoryPressureCallbacks();
  return callbacks;
}

bool MemoryPressureCallbacks::run(int device, Waiting waiting) noexcept {
  static thread_local constinit bool is_running = false;
  if (std::exchange(is_running, true)) return false;
  bool any = false;
  {
    const NoActivePool scope;
    const std::lock_guard lock(mutex_);
    all_.for_each([&](MemoryPressureCallback call) { any = call(device, waiting) || any; });
  }
  is_running = false;
  return any;
}

// A function of the program. Its mutex is held during a call, so that remove() waits for the end.
class OomFunction {
 public:
  explicit OomFunction(std::function<bool(Device, std::size_t)> function)
      : function_(std::move(function)) {}

  bool call(int device, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    if (is_removed_) return false;
    is_running_ = true;
    bool frees = false;
    try {
      const NoActivePool scope;
      frees = function_(Device::cuda(device), bytes);
    } catch (...) {
      logging::warn("add_oom_handler: a function failed: " + current_exception_text());
    }
    is_running_ = false;
    return frees;
  }
  void remove() noexcept {
    const std::lock_guard lock(mutex_);
    is_removed_ = true;
    if (!is_running_) function_ = nullptr;  // else it removes itself
  }

 private:
  std::recursive_mutex mutex_;  // guards the members below; a function may remove itself
  std::function<bool(Device, std::size_t)> function_;
  bool is_removed_ = false;
  bool is_running_ = false;
};

namespace {

using Functions = std::vector<std::shared_ptr<OomFunction>>;

struct Registry {
  std::mutex mutex;
  Functions functions;  // the oldest first
};

// Never destroyed: allocations may fail while the process exits.
Registry& registry() {
  static auto& instance = *new Registry();
  return instance;
}

Functions registered() {
  const std::lock_guard lock(registry().mutex);
  return registry().functions;
}

}  // namespace

OomHandler::OomHandler(std::shared_ptr<OomFunction> function) noexcept
    : function_(std::move(function)) {}
OomHandler::OomHandler(OomHandler&& other) noexcept = default;
OomHandler& OomHandler::operator=(OomHandler&& other) noexcept {
  if (this == &other) return *this;
  remove();
  function_ = std::move(other.function_);
  return *this;
}
OomHandler::~OomHandler() { remove(); }

void OomHandler::remove() noexcept {
  const std::shared_ptr<OomFunction> function = std::exchange(function_, nullptr);
  if (function == nullptr) return;
  {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().functions, function);
  }
  function->remove();
}

OomHandler add_oom_handler(std::function<bool(Device, std::size_t)> handler) {
  if (!handler) {
    throw InvalidArgument("add_oom_handler: expected a function, but got an empty one");
  }
  auto function = std::make_shared<OomFunction>(std::move(handler));
  const std::lock_guard lock(registry().mutex);
  registry().functions.push_back(function);
  return OomHandler(std::move(function));
}

bool OomHandlerCalls::run(const std::function<std::int64_t()>& measure) noexcept {
  static thread_local constinit bool is_running = false;
  if (std::exchange(is_running, true)) return false;
  bool again = false;
  try {
    const Functions functions = registered();
    for (auto function = functions.rbegin(); function != functions.rend() && !again; ++function) {
      if (std::ranges::find(spent_, *function) != spent_.end()) continue;
      const std::int64_t before = measure();
      spent_.push_back(*function);  // unless it frees memory
      again = (*function)->call(device_, bytes_);
      if (!again || measure() > before) spent_.pop_back();
    }
  } catch (const std::exception& error) {  // no host memory, or a driver that fails
    logging::debug(std::string("add_oom_handler: ") + error.what());
  }
  is_running = false;
  return again;
}

}  // namespace gantry::memory
