// index_scatter: Note [Deterministic scatter], for indices that all fibres share. The indices are
// sorted instead of the positions: the sort costs as much as one fibre.
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/sort_positions.hpp"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

// Writes the position of every index; plan.index_size marks an index out of range.
__global__ void __launch_bounds__(kThreads)
    index_positions_kernel(const __grid_constant__ IndexingPlan plan, std::uint32_t count,
                           std::uint64_t* keys, std::uint32_t* positions) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) {
    const std::int64_t index = load_index(plan, i * plan.indices_stride);
    std::int64_t position = position_of(plan, index);
    if (!is_inside(plan, position)) {
      report_fault(plan, index);
      position = plan.index_size;
    }
    keys[i] = static_cast<std::uint64_t>(position);
    positions[i] = static_cast<std::uint32_t>(i);
  }
}

// Threads of dim x take fibres, threads of dim y take sorted indices. The thread of the first index
// in a run of equal ones makes all writes of the run to its fibre.
template <class Update>
__global__ void __launch_bounds__(kThreads)
    index_runs_kernel(const __grid_constant__ IndexingPlan plan,
                      const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t fibres,
                      std::uint32_t count, const std::uint64_t* keys,
                      const std::uint32_t* positions) {
  using T = typename Update::Element;
  const std::int64_t row_step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const std::int64_t fibre_step = static_cast<std::int64_t>(gridDim.y) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; i < count;
       i += row_step) {
    const std::uint64_t key = keys[i];
    if (key == static_cast<std::uint64_t>(plan.index_size)) continue;
    if (i > 0 && keys[i - 1] == key) continue;
    for (std::int64_t fibre = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
         fibre < fibres; fibre += fibre_step) {
      std::int64_t offsets[3];
      calculator.offsets(static_cast<std::uint32_t>(fibre), offsets);
      const T* from = static_cast<const T*>(plan.direct) + offsets[0];
      T& element = static_cast<T*>(
          plan.indexed)[offsets[1] + static_cast<std::int64_t>(key) * plan.index_stride];
      T value = element;
      for (std::int64_t j = i; j < count && keys[j] == key; ++j) {
        value = Update::apply(value, from[positions[j] * plan.direct_stride]);
      }
      element = value;
    }
  }
}

}  // namespace

std::size_t index_scatter_bytes(const IndexingPlan& plan) {
  return PositionSort(plan.fibre_length, plan.index_size, nullptr).bytes();
}

void index_scatter(void* stream, const IndexingPlan& plan, ScatterMode mode, void* scratch) {
  const PositionSort sort(plan.fibre_length, plan.index_size, scratch);
  const auto count = static_cast<std::uint32_t>(plan.fibre_length);
  launch("index_positions", stream, blocks_for(count), kThreads, 0, index_positions_kernel, plan,
         count, sort.keys(), sort.positions());
  sort.run(plan.op, stream);
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
          int wide = 1;  // threads side by side along the fibres
          while (wide < kThreads && wide < piece.numel) wide *= 2;
          const int rows = kThreads / wide;
          const std::int64_t row_blocks = (static_cast<std::int64_t>(count) + rows - 1) / rows;
          const std::int64_t fibre_blocks = (piece.numel + wide - 1) / wide;
          const dim3 blocks(
              static_cast<unsigned>(row_blocks < kMaxBlocks ? row_blocks : kMaxBlocks),
              static_cast<unsigned>(fibre_blocks < 65535 ? fibre_blocks : 65535));
          launch("index_scatter", stream, blocks,
                 dim3(static_cast<unsigned>(wide), static_cast<unsigned>(rows)), 0,
                 index_runs_kernel<Update>, part, OffsetCalculator<3>(piece),
                 static_cast<std::uint32_t>(piece.numel), count, sort.sorted_keys(),
                 sort.sorted_positions());
        },
        begin);
  });
}

}  // namespace gantry::kernels::cuda
