// Note [Deterministic scatter]
// Duplicate indices make the result depend on the order of writes: the last write wins, and
// floating sums round in that order. Atomics have no order. One thread therefore makes all writes
// to a destination. Many or short fibres: one thread per fibre. Few long fibres: the positions are
// sorted stably by destination, and one thread handles each run of equal destinations.
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/sort_positions.hpp"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

template <class Update>
__global__ void __launch_bounds__(kThreads)
    scatter_fibres_kernel(const __grid_constant__ IndexingPlan plan,
                          const __grid_constant__ OffsetCalculator<3> calculator,
                          std::uint32_t fibres) {
  using T = typename Update::Element;
  for (std::int64_t fibre = first_index(); fibre < fibres; fibre += index_step()) {
    std::int64_t offsets[3];
    calculator.offsets(static_cast<std::uint32_t>(fibre), offsets);
    const T* from = static_cast<const T*>(plan.direct) + offsets[0];
    T* to = static_cast<T*>(plan.indexed) + offsets[1];
    for (std::int64_t k = 0; k < plan.fibre_length; ++k) {
      const std::int64_t index = load_index(plan, offsets[2] + k * plan.indices_stride);
      const std::int64_t position = position_of(plan, index);
      if (!is_inside(plan, position)) {
        report_fault(plan, index);
        continue;
      }
      T& element = to[position * plan.index_stride];
      element = Update::apply(element, from[k * plan.direct_stride]);
    }
  }
}

// Writes the destination offset of every position; plan.indexed_extent marks an index out of range.
__global__ void __launch_bounds__(kThreads)
    destinations_kernel(const __grid_constant__ IndexingPlan plan,
                        const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t count,
                        std::uint64_t* destinations, std::uint32_t* positions) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    std::int64_t offsets[3];
    calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    const std::int64_t index = load_index(plan, offsets[2]);
    std::int64_t destination = plan.indexed_extent;
    const std::int64_t position = position_of(plan, index);
    if (is_inside(plan, position)) {
      destination = offsets[1] + position * plan.index_stride;
    } else {
      report_fault(plan, index);
    }
    destinations[i] = static_cast<std::uint64_t>(destination);
    positions[i] = static_cast<std::uint32_t>(i);
  }
}

// The thread of the first position in a run of equal destinations makes all writes of the run.
template <class Update>
__global__ void __launch_bounds__(kThreads)
    scatter_runs_kernel(const __grid_constant__ IndexingPlan plan,
                        const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t count,
                        const std::uint64_t* destinations, const std::uint32_t* positions) {
  using T = typename Update::Element;
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    const std::uint64_t destination = destinations[i];
    if (destination == static_cast<std::uint64_t>(plan.indexed_extent)) continue;
    if (i > 0 && destinations[i - 1] == destination) continue;
    T& element = static_cast<T*>(plan.indexed)[destination];
    T value = element;
    for (std::int64_t j = i; j < count && destinations[j] == destination; ++j) {
      std::int64_t offsets[3];
      calculator.offsets(positions[j], offsets);
      value = Update::apply(value, static_cast<const T*>(plan.direct)[offsets[0]]);
    }
    element = value;
  }
}

}  // namespace

void scatter_fibres(void* stream, const IndexingPlan& plan, ScatterMode mode) {
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    using T = typename Update::Element;
    const std::int64_t begin[3] = {};
    for_each_piece(
        plan.fibres,
        [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
          IndexingPlan part = plan;
          part.direct = static_cast<T*>(plan.direct) + offsets[0];
          part.indexed = static_cast<T*>(plan.indexed) + offsets[1];
          part.indices =
              static_cast<const char*>(plan.indices) + offsets[2] * (plan.is_wide ? 8 : 4);
          launch("scatter_fibres", stream, blocks_for(piece.numel), kThreads, 0,
                 scatter_fibres_kernel<Update>, part, OffsetCalculator<3>(piece),
                 static_cast<std::uint32_t>(piece.numel));
        },
        begin);
  });
}

std::size_t scatter_sorted_bytes(const IndexingPlan& plan) {
  return PositionSort(plan.positions.numel, plan.indexed_extent, nullptr).bytes();
}

void scatter_sorted(void* stream, const IndexingPlan& plan, ScatterMode mode, void* scratch) {
  const PositionSort sort(plan.positions.numel, plan.indexed_extent, scratch);
  const OffsetCalculator<3> calculator(plan.positions);
  const auto count = static_cast<std::uint32_t>(plan.positions.numel);
  launch("scatter_destinations", stream, blocks_for(count), kThreads, 0, destinations_kernel, plan,
         calculator, count, sort.keys(), sort.positions());
  sort.run("scatter", stream);
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    launch("scatter_runs", stream, blocks_for(count), kThreads, 0, scatter_runs_kernel<Update>,
           plan, calculator, count, sort.sorted_keys(), sort.sorted_positions());
  });
}

}  // namespace gantry::kernels::cuda
