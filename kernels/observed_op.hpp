// What profilers and traces see of tensor operations.
#pragma once

#include <span>
#include <string_view>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"
#include "streams/op_observers.hpp"

namespace gantry::kernels {

// Note [Observed operations]
// Every operation names itself to the check of its arguments, and every kernel goes through
// submit(). So two calls see all operations: note_op() at the check keeps the name and the time,
// and an ObservedOp in submit() makes the range of a profiler and the event of a trace, from the
// check to the end of the submission. An operation of several kernels has a range for each. While
// nothing observes, both cost one load.

// Names the operation that the calling thread begins. A name stays until the next one.
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
  ObservedOp(const Target& target, std::span<const TensorRef* const> operands,
             const char* kernel) {
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
