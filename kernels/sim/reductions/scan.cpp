#include "kernels/impl/scan.inl"

namespace gantry::kernels::host {

namespace {

template <ScanOp kOp, class In>
void scan_fibres(const FibrePlan& plan) {
  using Out = ScanOut<In>;
  for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
    auto* out = static_cast<Out*>(plan.out.data) + plan.out.outer.offset(fibre);
    const auto* in = static_cast<const In*>(plan.in.data) + plan.in.outer.offset(fibre);
    scan_fibre<kOp>(out, plan.out.stride, in, plan.in.stride, plan.length);
  }
}

}  // namespace

void scan(ScanOp op, const FibrePlan& plan) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (op == ScanOp::sum) scan_fibres<ScanOp::sum, In>(plan);
    if (op == ScanOp::product) scan_fibres<ScanOp::product, In>(plan);
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (op == ScanOp::log_sum_exp) scan_fibres<ScanOp::log_sum_exp, In>(plan);
    }
  });
}

}  // namespace gantry::kernels::host
