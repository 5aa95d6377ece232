#include "kernels/reductions/variance.hpp"

#include <limits>

#include "kernels/direct_call.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/layout/copy.hpp"
#include "kernels/reductions/reduction_names.hpp"

namespace gantry::kernels {

namespace {

void compute_on_host(const ReducePlan& plan) {
  host::reduce(plan);
  host::repeat_variances(plan);
}

}  // namespace

void variance(const Target& target, bool is_root, const TensorRef& out, const TensorRef& means,
              const TensorRef& in, double divisor) {
  if (out.numel() == 0) return;
  check_dtypes(name_of(is_root ? Reduction::deviation : Reduction::variance), {&out, &in});
  if (in.numel() == 0) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    fill(target, out, kNan);
    if (means.data != nullptr) fill(target, means, kNan);
    return;
  }
  const Reduction op = is_root ? Reduction::deviation : Reduction::variance;
  ReducePlan plan = make_reduce_plan(op, out, in, divisor);
  plan.second_out = means.data;
  if (is_direct_call(target)) return compute_on_host(plan);
  submit(
      {name_of(op), 2}, target, {&out, means.data == nullptr ? nullptr : &means, &in},
      [plan] { compute_on_host(plan); },
      [&](void* stream) {
        reduce_on_gpu(target, stream, plan);
        // The kernel of one chunk repeats them itself.
        if (plan.chunks > 1) cuda::repeat_variances(stream, plan);
      });
}

}  // namespace gantry::kernels
