#include <algorithm>

#include "collectives/hierarchical/transport.hpp"
#include "collectives/reduction.hpp"
#include "kernels/peers/nary.hpp"

namespace gantry {

namespace {

// Reduces any number of arrays, in passes of the most inputs that a kernel takes. Requires a dtype
// that accumulates in itself.
void reduce_in_passes(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                      const Reduction& how) {
  const auto target = kernels::Target::on(Stream::current(out.device()));
  const auto* base = static_cast<const std::byte*>(contributions.data());
  std::vector<const void*> inputs;
  for (std::size_t i = 0; i < order.size(); ++i) {
    inputs.push_back(base + static_cast<std::size_t>(order[i]) * out.nbytes());
    const bool is_last = i + 1 == order.size();
    if (!is_last && inputs.size() < static_cast<std::size_t>(kernels::kMaxNaryInputs)) continue;
    kernels::nary(target, how.op, out.data(), inputs, out.numel(), out.dtype(),
                  is_last ? how.divisor : 1);
    inputs = {out.data()};
  }
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
  const bool fits = order.size() <= static_cast<std::size_t>(kernels::kMaxNaryInputs);
  if (!scales && (fits || !is_narrow)) return reduce_in_passes(out, contributions, order, how);
  // The kernel does not scale, and rounds its output: accumulate in the accumulator's dtype.
  const DType wide_type = is_narrow ? DType::f32 : what.dtype;
  Tensor wide = contributions.to(wide_type, {.copy = true});
  if (scales) wide.mul_(what.scale);
  const Tensor sum = wide.new_empty(out.sizes());
  reduce_in_passes(sum, wide, order, how);
  Tensor(out).copy_(sum);
}

}  // namespace gantry
