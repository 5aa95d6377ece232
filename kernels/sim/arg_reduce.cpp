#include "kernels/impl/arg_reduce.inl"
#include "kernels/line_plans.hpp"

namespace gantry::kernels::host {

void arg_reduce(bool largest, const LinePlan& plan, const Lines& indices) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = AccumulatorType<T>;
    for (std::int64_t line = 0; line < plan.count; ++line) {
      const T* in = static_cast<const T*>(plan.in.data) + plan.in.lines.offset(line);
      Champion<Acc> best{static_cast<Acc>(in[0]), 0};
      for (std::int64_t k = 1; k < plan.length; ++k) {
        const Acc value = static_cast<Acc>(in[k * plan.in.stride]);
        if (beats(largest, value, best.value)) best = {value, k};
      }
      static_cast<std::int64_t*>(indices.data)[indices.lines.offset(line)] = best.index;
      if (plan.out.data != nullptr) {
        static_cast<T*>(plan.out.data)[plan.out.lines.offset(line)] =
            stored_winner(in[best.index * plan.in.stride]);
      }
    }
  });
}

}  // namespace gantry::kernels::host
