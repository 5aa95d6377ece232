// Note [Deterministic scatter]
// Duplicate indices make the result depend on the order of writes: the last write wins, and
// floating sums round in that order. Atomics have no order. One thread therefore makes all writes
// to a destination. Many or short fibres: one thread per fibre. Few long fibres: the positions are
// sorted stably by destination, and one thread handles each run of equal destinations.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
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
      if (!is_inside(plan, index)) {
        report_fault(plan, index);
        continue;
      }
      T& element = to[index * plan.index_stride];
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
    if (is_inside(plan, index)) {
      destination = offsets[1] + index * plan.index_stride;
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

// Layout of scatter_sorted's scratch memory: two buffers of keys, two of values, CUB's storage.
struct SortScratch {
  std::size_t keys_bytes;
  std::size_t values_bytes;
  std::size_t cub_bytes;

  explicit SortScratch(const IndexingPlan& plan) {
    const auto count = static_cast<std::size_t>(plan.positions.numel);
    keys_bytes = aligned(count * sizeof(std::uint64_t));
    values_bytes = aligned(count * sizeof(std::uint32_t));
    cub_bytes = 0;
    sort(plan, nullptr, cub_bytes, nullptr, nullptr, nullptr, nullptr, nullptr);
  }

  std::size_t total() const { return 2 * keys_bytes + 2 * values_bytes + cub_bytes; }

  static void sort(const IndexingPlan& plan, void* cub, std::size_t& cub_bytes,
                   const std::uint64_t* keys, std::uint64_t* sorted_keys,
                   const std::uint32_t* values, std::uint32_t* sorted_values, void* stream) {
    int bits = 1;
    while (bits < 64 && (static_cast<std::uint64_t>(plan.indexed_extent) >> bits) != 0) ++bits;
    const cudaError_t status =
        cub::DeviceRadixSort::SortPairs(cub, cub_bytes, keys, sorted_keys, values, sorted_values,
                                        static_cast<std::uint32_t>(plan.positions.numel), 0, bits,
                                        static_cast<cudaStream_t>(stream));
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error("scatter (radix sort)", stream, status);
    }
  }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
};

}  // namespace

void scatter_fibres(void* stream, const IndexingPlan& plan, bool accumulate) {
  dispatch_scatter(accumulate, plan.dtype, plan.element_bytes, [&](auto tag) {
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

std::size_t scatter_sorted_bytes(const IndexingPlan& plan) { return SortScratch(plan).total(); }

void scatter_sorted(void* stream, const IndexingPlan& plan, bool accumulate, void* scratch) {
  SortScratch layout(plan);
  auto* memory = static_cast<char*>(scratch);
  auto* keys = reinterpret_cast<std::uint64_t*>(memory);
  auto* sorted_keys = reinterpret_cast<std::uint64_t*>(memory + layout.keys_bytes);
  memory += 2 * layout.keys_bytes;
  auto* values = reinterpret_cast<std::uint32_t*>(memory);
  auto* sorted_values = reinterpret_cast<std::uint32_t*>(memory + layout.values_bytes);
  memory += 2 * layout.values_bytes;

  const OffsetCalculator<3> calculator(plan.positions);
  const auto count = static_cast<std::uint32_t>(plan.positions.numel);
  launch("scatter_destinations", stream, blocks_for(count), kThreads, 0, destinations_kernel, plan,
         calculator, count, keys, values);
  SortScratch::sort(plan, memory, layout.cub_bytes, keys, sorted_keys, values, sorted_values,
                    stream);
  dispatch_scatter(accumulate, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    launch("scatter_runs", stream, blocks_for(count), kThreads, 0, scatter_runs_kernel<Update>,
           plan, calculator, count, sorted_keys, sorted_values);
  });
}

}  // namespace gantry::kernels::cuda
