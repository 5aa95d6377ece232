#include "kernels/impl/scatter.inl"

#include <algorithm>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/indexing/index_fault.hpp"

namespace gantry::kernels::host {

namespace {

template <class Update>
void scatter_rows(const IndexingPlan& plan) {
  using T = typename Update::Element;
  std::int64_t positions[kPositions];
  for_each_row(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    const auto [from_stride, to_stride, next_index] = plan.positions.strides[0];
    const std::int64_t index_stride = plan.index_stride;
    const std::int64_t length = plan.positions.sizes[0];
    const std::int64_t step = next_index == 0 ? length : kPositions;
    for (std::int64_t done = 0; done < length; done += step) {
      const T* const from = static_cast<const T*>(plan.direct) + offsets[0] + done * from_stride;
      T* const to = static_cast<T*>(plan.indexed) + offsets[1] + done * to_stride;
      const std::int64_t at = offsets[2] + done * next_index;
      const std::int64_t n = std::min(step, length - done);
      const int read = next_index == 0 ? 1 : static_cast<int>(n);
      const bool inside = IndexReader(plan).read(positions, at, next_index, read);
      if (!inside) report_faults(plan, positions, at, next_index, read);
      if (next_index != 0) {
        for (std::int64_t i = 0; i < n; ++i) {
          if (positions[i] < 0) continue;
          T& element = to[i * to_stride + positions[i] * index_stride];
          element = Update::apply(element, from[i * from_stride]);
        }
        continue;
      }
      if (!inside) continue;
      T* const row = to + positions[0] * index_stride;
      if (to_stride == 1 && from_stride == 1) {
        for (std::int64_t i = 0; i < n; ++i) row[i] = Update::apply(row[i], from[i]);
      } else {
        for (std::int64_t i = 0; i < n; ++i) {
          row[i * to_stride] = Update::apply(row[i * to_stride], from[i * from_stride]);
        }
      }
    }
  });
}

}  // namespace

void scatter(const IndexingPlan& plan, ScatterMode mode) {
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    with_fma([&] { scatter_rows<typename decltype(tag)::type>(plan); });
  });
}

}  // namespace gantry::kernels::host
