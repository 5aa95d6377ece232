#include "kernels/impl/softmax.inl"

#include <vector>

#include "kernels/fibre_plan.hpp"
#include "kernels/sim/chunks.hpp"

namespace gantry::kernels::host {

namespace {

template <class T>
void softmax_fibres(bool logarithm, const FibrePlan& plan) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  std::vector<Acc> exponentials(plan.length);
  for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    Acc maximum = Max::neutral();
    for (std::int64_t k = 0; k < plan.length; ++k) {
      maximum = Max::combine(maximum, static_cast<Acc>(in[k * plan.in.stride]));
    }
    for (std::int64_t k = 0; k < plan.length; ++k) {
      exponentials[k] = exponential(static_cast<Acc>(in[k * plan.in.stride]) - maximum);
    }
    const Acc sum = reduce_contiguous<Sum, Sum, Acc>(exponentials.data(), plan.length);
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
    for (std::int64_t k = 0; k < plan.length; ++k) {
      const Acc x = static_cast<Acc>(in[k * plan.in.stride]);
      out[k * plan.out.stride] = from_accumulator<T>(
          logarithm ? softmax_element(true, x, maximum, tail) : exponentials[k] / tail);
    }
  }
}

}  // namespace

void softmax(bool logarithm, const FibrePlan& plan) {
  if (plan.length == 0) return;
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) softmax_fibres<T>(logarithm, plan);
  });
}

}  // namespace gantry::kernels::host
