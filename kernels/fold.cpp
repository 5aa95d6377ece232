#include "kernels/fold.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/fold_plan.hpp"

namespace gantry::kernels {

namespace {

TensorRef array(const void* data, std::int64_t count, DType dtype) {
  TensorRef result;
  result.data = const_cast<void*>(data);
  result.dtype = dtype;
  result.ndim = 1;
  result.sizes[0] = count;
  result.strides[0] = 1;
  return result;
}

bool is_bitwise(FoldOp op) {
  switch (op) {
    case FoldOp::band:
    case FoldOp::bor:
    case FoldOp::bxor:
      return true;
    case FoldOp::sum:
    case FoldOp::prod:
    case FoldOp::min:
    case FoldOp::max:
      return false;
  }
  return false;
}

}  // namespace

void fold(const Target& target, FoldOp op, void* out, std::span<const void* const> inputs,
          std::int64_t count, DType dtype, double divisor) {
  if (inputs.empty() || inputs.size() > static_cast<std::size_t>(kMaxFoldInputs)) {
    throw InvalidArgument(
        fmt::format("fold: 1 to {} inputs expected, but got {}", kMaxFoldInputs, inputs.size()));
  }
  if (is_bitwise(op) && is_floating_point(dtype)) {
    throw DTypeError(fmt::format(
        "fold: bitwise operations expect an integer or bool dtype, but got {}", name(dtype)));
  }
  if (count == 0) return;
  FoldPlan plan;
  plan.op = op;
  plan.dtype = dtype;
  plan.input_count = static_cast<std::int32_t>(inputs.size());
  plan.count = count;
  plan.divisor = divisor;
  plan.out = out;
  std::copy(inputs.begin(), inputs.end(), plan.inputs);

  if (!target.is_cpu() && platform() == Platform::simulated) {
    for (const void* input : inputs) {
      check_sim_operand(target.device().index, array(input, count, dtype));
    }
  }
  const TensorRef out_array = array(out, count, dtype);
  submit(
      target, {&out_array}, [plan] { host::fold(plan); },
      [&](void* stream) { cuda::fold(stream, plan); });
}

}  // namespace gantry::kernels
