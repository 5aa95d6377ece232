#include "kernels/impl/scan.inl"

namespace gantry::kernels::host {

void scan(bool product, const FibrePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Out = ScanOut<In>;
    for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
      auto* out = static_cast<Out*>(plan.out.data) + plan.out.outer.offset(fibre);
      const auto* in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre);
      if (product) {
        scan_fibre<true>(out, plan.out.stride, in, plan.in.stride, plan.length);
      } else {
        scan_fibre<false>(out, plan.out.stride, in, plan.in.stride, plan.length);
      }
    }
  });
}

}  // namespace gantry::kernels::host
