#include "kernels/impl/gather.inl"

#include "kernels/host/indexing/index_fault.hpp"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::host {

void gather(const IndexingPlan& plan) {
  dispatch_word(plan.element_bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_position(plan.positions, [&](const std::int64_t(&offsets)[3]) {
      std::int64_t index;
      if (!gather_element<T>(plan, offsets, index)) report_fault(plan, index);
    });
  });
}

void index_offsets(const OffsetsPlan& plan) {
  for_each_position(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    plan.out[offsets[0]] = offset_of_terms(plan, offsets, report_fault);
  });
}

}  // namespace gantry::kernels::host
