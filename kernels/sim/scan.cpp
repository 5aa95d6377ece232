#include "kernels/impl/scan.inl"

#include "kernels/fibre_plan.hpp"

namespace gantry::kernels::host {

void scan(bool product, const FibrePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Out = ScanOut<In>;
    for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
      scan_fibre(product, static_cast<Out*>(plan.out.data) + plan.out.outer.offset(fibre),
                 plan.out.stride,
                 static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre), plan.in.stride,
                 plan.length);
    }
  });
}

}  // namespace gantry::kernels::host
