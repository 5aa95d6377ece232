// What profilers and traces see of tensor operations.
#pragma once

#include <span>
#include <string_view>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"
#include "streams/profiling/op_observers.hpp"

namespace gantry::kernels {

// Note [Observed operations]
// Every operation first checks its arguments, and every kernel goes through submit(). These two
// places therefore see all operations. note_check() keeps the time of the last check. An ObservedOp
// in submit() makes a profiler range and a trace event, from that check to the end of the
// submission. An operation of several kernels has a range for each. The name of a range is that of
// the kernel ("gather"). Many operations share the kernels of elementwise operations and
// reductions; they set their name by note_op(), after the last check. While nothing observes, each
// of the two places costs one load.

// Notes that the calling thread begins to check the arguments of an operation.
void note_check_observed() noexcept;
inline void note_check() noexcept {
  if (ops_are_observed()) [[unlikely]] {
    note_check_observed();
  }
}
// Names the operation that the calling thread submits next.
void note_op_observed(std::string_view op) noexcept;
inline void note_op(std::string_view op) noexcept {
  if (ops_are_observed()) [[unlikely]] {
    note_op_observed(op);
  }
}

// The submission of one kernel.
class ObservedOp {
 public:
  // `kernel` is its name.
  ObservedOp(const Target& target, std::span<const TensorRef* const> operands, const char* kernel) {
    if (ops_are_observed()) [[unlikely]] {
      begin(target, operands, kernel);
    }
  }
  ~ObservedOp() {
    if (is_observed_) [[unlikely]] {
      end();
    }
  }
  ObservedOp(const ObservedOp&) = delete;
  ObservedOp& operator=(const ObservedOp&) = delete;

 private:
  void begin(const Target& target, std::span<const TensorRef* const> operands,
             const char* kernel) noexcept;
  void end() noexcept;

  bool is_observed_ = false;
  bool has_range_ = false;
  struct Details;
  Details* details_ = nullptr;
};

}  // namespace gantry::kernels
