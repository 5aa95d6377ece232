#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include <gantry/streams/stream.hpp>

namespace gantry {

// Note [Deadlines of foreign kernels]
// Kernels of NCCL tell nobody that they wait. Events before and behind each operation do, so that
// its deadline counts from when it begins, not from when it was enqueued. One thread asks the
// driver about the oldest operation. The driver may not answer while a launch is stuck, so another
// thread counts the time, and takes no answer for no news. A second thing is asked again and again:
// whether the library has found an error by itself. Operations of a captured graph have no events,
// and so no deadline.

// Gives operations on one device a deadline each.
// Thread safety: begin() and end() by one thread at a time.
class OperationDeadlines {
 public:
  struct Actions {
    // What the library has found wrong; empty: nothing.
    std::function<std::string()> find_error;
    // Told once, by a thread of this object, that `call` is late (a TimeoutError) or failed.
    std::function<void(std::uint64_t call, std::exception_ptr why)> give_up;
  };

  // Throws: std::system_error if there is no thread.
  OperationDeadlines(int device, std::chrono::milliseconds timeout, Actions actions);
  // Waits for nothing. No action begins afterwards.
  ~OperationDeadlines();
  OperationDeadlines(const OperationDeadlines&) = delete;
  OperationDeadlines& operator=(const OperationDeadlines&) = delete;

  // Encloses what is enqueued for `call`, which `text` describes. Throws: CudaError.
  void begin(const Stream& stream, std::uint64_t call, std::string text);
  void end(const Stream& stream);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with threads that may be stuck in the driver
};

}  // namespace gantry
