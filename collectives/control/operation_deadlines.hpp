// Deadlines of operations whose kernels report no progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <gantry/streams/stream.hpp>

#include "collectives/bootstrap/group_timeout.hpp"

namespace gantry {

// Note [Deadlines of foreign kernels]
// Kernels of NCCL and of a Window do not signal their progress. gantry records events before and
// after each operation instead. The deadline of an operation therefore counts from its start on the
// device, not from its submission. One thread queries the driver for the oldest operation. The
// driver may block while a launch is blocked. So a second thread measures the time, and takes a
// query that does not return as no progress. It also polls for asynchronous errors. Operations of a
// captured graph have no events, and so no deadline.

// The deadlines of operations on one device.
// Thread safety: begin() and end() by one thread at a time.
class OperationDeadlines {
 public:
  struct Actions {
    // Returns the asynchronous error of the operation with this text; null: none. Optional.
    std::function<std::exception_ptr(const std::string& text)> find_error;
    // Called once, by a thread of this object, when `call` is late (a TimeoutError) or failed.
    std::function<void(std::uint64_t call, std::exception_ptr why)> on_failure;
    // Why an operation may be late, in the text of the TimeoutError.
    std::string cause;
    // Returns the error of a late operation, where it finds the cause; null: it is not late.
    // Optional. `number`: it is the operation of this number, from 1 on. `source` sets the timeout.
    std::function<std::exception_ptr(std::uint64_t number, std::chrono::milliseconds timeout,
                                     std::string_view source)>
        find_lateness = {};
    // Called after each change, with the numbers of operations that have begun, and that have
    // finished. Optional.
    std::function<void(std::uint64_t begun, std::uint64_t finished)> on_progress = {};
  };

  // Starts the threads. Throws: std::system_error.
  OperationDeadlines(int device, GroupTimeout timeout, Actions actions);
  // Does not block. No action begins afterwards.
  ~OperationDeadlines();
  OperationDeadlines(const OperationDeadlines&) = delete;
  OperationDeadlines& operator=(const OperationDeadlines&) = delete;

  // Enclose the submission of `call`, which `text` describes. `timeout`: of the call; 0: the
  // group's. Throws: CudaError.
  void begin(const Stream& stream, std::uint64_t call, std::string text,
             std::chrono::milliseconds timeout = {});
  void end(const Stream& stream);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with threads that may be blocked in the driver
};

}  // namespace gantry
