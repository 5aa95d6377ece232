#include "kernels/reductions/variance.hpp"

#include <algorithm>

#include "kernels/direct_call.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels {

namespace {

// True if the elements of a contiguous tensor on the CPU are finite.
bool are_finite(const TensorRef& tensor) {
  const auto all = [&tensor](const auto* elements) {
    return std::all_of(elements, elements + tensor.numel(),
                       [](auto element) { return is_finite(element); });
  };
  return tensor.dtype == DType::f64 ? all(static_cast<const double*>(tensor.data))
                                    : all(static_cast<const float*>(tensor.data));
}

}  // namespace

void repeat_variances(const Target& target, const TensorRef& out, const TensorRef& in,
                      double divisor, bool is_root) {
  if (out.numel() == 0 || in.numel() == 0) return;
  if (is_direct_call(target) && are_finite(out)) return;
  const ReducePlan plan = make_reduce_plan(Reduction::sum_squares, out, in, divisor);
  if (is_direct_call(target)) return host::repeat_variances(plan, is_root);
  submit(
      "var", target, {&out, &in}, [plan, is_root] { host::repeat_variances(plan, is_root); },
      [&](void* stream) { cuda::repeat_variances(stream, plan, is_root); });
}

}  // namespace gantry::kernels
