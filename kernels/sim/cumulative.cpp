#include <cstdint>

#include "kernels/impl/cumulative.inl"

namespace gantry::kernels::host {

void cumulative_extremum(const SortPlan& plan) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const KeyOrder<U> order = make_extremum_order<U>(plan.fibres.dtype, plan.largest_first);
    for (std::int64_t fibre = 0; fibre < plan.fibres.count; ++fibre) {
      run_fibre<U>(plan, order, fibre);
    }
  });
}

}  // namespace gantry::kernels::host
