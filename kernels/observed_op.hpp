// The kernels of operations as profilers and traces see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <gantry/core/dtype.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// The operands of a kernel that takes arrays in place of tensors: `arrays` arrays of `count`
// elements each.
struct ArrayOperands {
  std::size_t arrays = 0;
  std::int64_t count = 0;
  DType dtype = DType::u8;
};

// The submission of one kernel: a range for profilers and an event of a trace. Note [Observed
// operations]
class ObservedOp {
 public:
  // `kernel` is its name. Its operands are tensors, or groups of arrays.
  ObservedOp(const Target& target, std::span<const TensorRef* const> operands, const char* kernel,
             std::span<const ArrayOperands> arrays = {}) {
    if (has_observer(kOpObservers)) [[unlikely]] {
      begin(target, operands, kernel, arrays);
    }
  }
  // A kernel of the program, which also names its work on the device.
  ObservedOp(const Target& target, std::string kernel, std::string operands) {
    if (has_observer(kOpObservers)) [[unlikely]] {
      begin(target, std::move(kernel), std::move(operands));
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
  void begin(const Target& target, std::span<const TensorRef* const> operands, const char* kernel,
             std::span<const ArrayOperands> arrays) noexcept;
  void begin(const Target& target, std::string kernel, std::string operands) noexcept;
  struct Details;
  void enter(const Target& target, std::unique_ptr<Details> details, std::int64_t now);
  void end() noexcept;

  bool is_observed_ = false;
  bool has_range_ = false;
  Details* details_ = nullptr;
};

}  // namespace gantry::kernels
