#include "kernels/impl/arg_reduce.inl"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::host {

void arg_reduce(bool largest, const FibrePlan& plan, const Fibres& indices) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = AccumulatorType<T>;
    for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
      const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
      ArgReduceState<Acc> best{static_cast<Acc>(in[0]), 0};
      for (std::int64_t k = 1; k < plan.length; ++k) {
        const Acc value = static_cast<Acc>(in[k * plan.in.stride]);
        if (precedes(largest, value, best.value)) best = {value, k};
      }
      static_cast<std::int64_t*>(indices.data)[indices.outer.offset(fibre)] = best.index;
      if (plan.out.data != nullptr) {
        static_cast<T*>(plan.out.data)[plan.out.outer.offset(fibre)] =
            stored_value(in[best.index * plan.in.stride]);
      }
    }
  });
}

}  // namespace gantry::kernels::host
