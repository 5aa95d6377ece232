#include "kernels/impl/cumulate.inl"

#include "kernels/line_plans.hpp"

namespace gantry::kernels::host {

void cumulate(bool product, const LinePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Out = CumulateOut<In>;
    for (std::int64_t line = 0; line < plan.count; ++line) {
      cumulate_line(product, static_cast<Out*>(plan.out.data) + plan.out.lines.offset(line),
                    plan.out.stride,
                    static_cast<const In*>(plan.in.data) + plan.in.lines.offset(line),
                    plan.in.stride, plan.length);
    }
  });
}

}  // namespace gantry::kernels::host
