#include <cstdint>

#include "kernels/impl/cumulative.inl"

namespace gantry::kernels::host {

void cumulative_extremum(const SortPlan& plan) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const KeyOrder<U> order = make_extremum_order<U>(plan.fibres.dtype, plan.largest_first);
    with_key_function(order, [&](const auto& key_of) {
      for (std::int64_t fibre = 0; fibre < plan.fibres.count; ++fibre) {
        run_fibre<U>(plan, order, key_of, fibre);
      }
    });
  });
}

}  // namespace gantry::kernels::host
