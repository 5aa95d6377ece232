#include <gantry/streams/host_function.hpp>

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "device/drivers/fault_source.hpp"
#include "streams/capture.hpp"

namespace gantry {
namespace {

// The exceptions of the functions on one device. Never destroyed: functions may run at the exit.
class HostFunctionFaults final : public FaultSource {
 public:
  explicit HostFunctionFaults(int device) : device_(device) { add_fault_source(*this); }

  static HostFunctionFaults& of(int device) {
    static auto& mutex = *new std::mutex();
    static auto& faults = *new std::map<int, HostFunctionFaults*>();
    const std::lock_guard lock(mutex);
    HostFunctionFaults*& one = faults[device];
    if (one == nullptr) one = new HostFunctionFaults(device);
    return *one;
  }

  void add(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      errors_.push_back(std::move(error));
      count_.fetch_add(1, std::memory_order_release);
    } catch (const std::bad_alloc&) {  // no memory for a further error
    }
  }
  int fault_device() const noexcept override { return device_; }
  bool has_fault() const noexcept override { return count_.load(std::memory_order_acquire) != 0; }
  void raise_fault() override {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      if (errors_.empty()) return;
      error = std::move(errors_.front());
      errors_.pop_front();
      count_.fetch_sub(1, std::memory_order_release);
    }
    std::rethrow_exception(std::move(error));
  }

 private:
  const int device_;
  std::atomic<int> count_{0};
  std::mutex mutex_;  // guards the next member
  std::deque<std::exception_ptr> errors_;
};

struct HostFunction {
  std::function<void()> function;
  HostFunctionFaults& faults;

  void run() noexcept {
    try {
      function();
    } catch (...) {
      faults.add(std::current_exception());
    }
  }
};

void run_once(void* data) {
  const std::unique_ptr<HostFunction> function(static_cast<HostFunction*>(data));
  function->run();
}

void run_captured(void* data) { static_cast<HostFunction*>(data)->run(); }

void release_captured(void* data) { delete static_cast<HostFunction*>(data); }

}  // namespace

void launch_host_function(const Stream& stream, std::function<void()> function) {
  if (!function) {
    throw InvalidArgument("launch_host_function: expected a function, but got an empty one");
  }
  if (is_captured(stream.native()) && driver().condition_depth(stream.native()) != 0) {
    throw CaptureError(
        "launch_host_function: expected a stream outside of graph_if and graph_while, whose bodies "
        "have no host functions, but got one inside",
        stream.device().str());
  }
  auto call = std::make_unique<HostFunction>(std::move(function),
                                             HostFunctionFaults::of(stream.device().index));
  if (!is_captured(stream.native())) {
    driver().launch_host_function(stream.native(), run_once, call.get());
    static_cast<void>(call.release());  // run_once() owns it
    return;
  }
  HostFunction* const captured = call.release();
  driver().retain_by_capture(stream.native(), release_captured, captured);
  driver().launch_host_function(stream.native(), run_captured, captured);
}

}  // namespace gantry
