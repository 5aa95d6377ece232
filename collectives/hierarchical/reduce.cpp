#include <cstddef>
#include <vector>

#include "collectives/hierarchical/transport.hpp"
#include "collectives/reduction.hpp"
#include "collectives/reduction_passes.hpp"

namespace gantry {

namespace {

// Reduces any number of arrays. Requires fits_passes().
void reduce_arrays(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                   const Reduction& how) {
  const auto* base = static_cast<const std::byte*>(contributions.data());
  std::vector<const void*> inputs;
  inputs.reserve(order.size());
  for (const int place : order) {
    inputs.push_back(base + static_cast<std::size_t>(place) * out.nbytes());
  }
  reduce_in_passes(kernels::Target::on(Stream::current(out.device())), how, out.data(), inputs,
                   out.numel(), out.dtype());
}

}  // namespace

bool is_free_order(const Descriptor& what) {
  if (what.reproducible == 0 || !is_floating_point(what.dtype)) return true;
  switch (what.op) {
    case ReduceOp::min:
    case ReduceOp::max:
      return true;
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::avg:
      return false;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return true;
  }
  __builtin_unreachable();
}

void reduce_ordered(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                    const Descriptor& what) {
  if (out.numel() == 0) return;
  const Reduction how =
      reduction_for(what.op, what.dtype, static_cast<int>(order.size()), name(what.kind));
  const bool is_narrow = what.dtype == DType::f16 || what.dtype == DType::bf16;
  const bool scales = what.scale != 1 && is_floating_point(what.dtype);
  if (!scales && fits_passes(what.dtype, order.size())) {
    return reduce_arrays(out, contributions, order, how);
  }
  // The kernel does not scale, and rounds its output: accumulate in the accumulator's dtype.
  const DType wide_type = is_narrow ? DType::f32 : what.dtype;
  Tensor wide = contributions.to(wide_type, {.copy = true});
  if (scales) wide.mul_(what.scale);
  const Tensor sum = wide.new_empty(out.sizes());
  reduce_arrays(sum, wide, order, how);
  Tensor(out).copy_(sum);
}

}  // namespace gantry
