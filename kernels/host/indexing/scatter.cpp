#include "kernels/impl/scatter.inl"

#include "kernels/host/indexing/index_fault.hpp"

namespace gantry::kernels::host {

void scatter(const IndexingPlan& plan, ScatterMode mode) {
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    using T = typename Update::Element;
    for_each_position(plan.positions, [&](const std::int64_t(&offsets)[3]) {
      const std::int64_t index = load_index(plan, offsets[2]);
      const std::int64_t position = position_of(plan, index);
      if (!is_inside(plan, position)) return report_fault(plan, index);
      T& element = static_cast<T*>(plan.indexed)[offsets[1] + position * plan.index_stride];
      element = Update::apply(element, static_cast<const T*>(plan.direct)[offsets[0]]);
    });
  });
}

}  // namespace gantry::kernels::host
