#include "kernels/impl/gather.inl"

#include <algorithm>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/indexing/index_fault.hpp"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::host {

namespace {

template <class T>
void gather_rows(const IndexingPlan& plan) {
  std::int64_t positions[kPositions];
  for_each_row(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    const auto [to_stride, from_stride, next_index] = plan.positions.strides[0];
    const std::int64_t index_stride = plan.index_stride;
    const std::int64_t length = plan.positions.sizes[0];
    const std::int64_t step = next_index == 0 ? length : kPositions;
    for (std::int64_t done = 0; done < length; done += step) {
      T* const to = static_cast<T*>(plan.direct) + offsets[0] + done * to_stride;
      const T* const from = static_cast<const T*>(plan.indexed) + offsets[1] + done * from_stride;
      const std::int64_t at = offsets[2] + done * next_index;
      const std::int64_t n = std::min(step, length - done);
      const int read = next_index == 0 ? 1 : static_cast<int>(n);
      const bool inside = IndexReader(plan).read(positions, at, next_index, read);
      if (!inside) report_faults(plan, positions, at, next_index, read);
      if (next_index != 0) {
        for (std::int64_t i = 0; i < n; ++i) {
          to[i * to_stride] =
              positions[i] < 0 ? T{} : from[i * from_stride + positions[i] * index_stride];
        }
        continue;
      }
      const T* const row = from + positions[0] * index_stride;
      if (!inside) {
        for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = T{};
      } else if (to_stride == 1 && from_stride == 1) {
        std::copy_n(row, n, to);
      } else {
        for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = row[i * from_stride];
      }
    }
  });
}

}  // namespace

void gather(const IndexingPlan& plan) {
  dispatch_word(plan.element_bytes, [&](auto tag) {
    with_fma([&] { gather_rows<typename decltype(tag)::type>(plan); });
  });
}

void index_offsets(const OffsetsPlan& plan) {
  for_each_position(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    plan.out[offsets[0]] = offset_of_terms(plan, offsets, report_fault);
  });
}

}  // namespace gantry::kernels::host
