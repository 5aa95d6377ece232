// Note [Deterministic scatter]
// Duplicate indices make the result depend on the order of writes: the last write wins, and
// floating sums round in that order. Atomics have no order, so only sums of integers use them.
// Otherwise there are four cases:
//  - few writes: Note [Owners of destinations];
//  - many or short fibres: one thread makes all writes of a fibre, in shared memory if the fibres
//    are short dense rows;
//  - fibres that a block sorts: Note [Tiles of fibres];
//  - few long fibres: where writes replace, only the last one is made, Note [Last write]. All other
//    writes are sorted stably by destination, and one thread makes the writes of each run of equal
//    destinations.
#include "kernels/cuda/indexing/scatter_keys.cuh"
#include "kernels/cuda/indexing/scatter_rows.cuh"

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
      const std::int64_t position = checked_position(plan, index);
      if (position < 0) continue;
      T& element = to[position * plan.index_stride];
      element = Update::apply(element, from[k * plan.direct_stride]);
    }
  }
}

// Values per step of a run: their loads are in flight together.
constexpr int kRunStep = 4;

// The thread of the first position in a run of equal destinations makes all writes of the run.
// With `has_values`, the words are the written values in the same order, else positions to load
// them from.
template <class Update, class Key>
__global__ void __launch_bounds__(kThreads)
    scatter_runs_kernel(const __grid_constant__ IndexingPlan plan,
                        const __grid_constant__ OffsetCalculator<3> calculator, std::uint32_t count,
                        const Key* destinations, const std::uint32_t* words, bool has_values) {
  using T = typename Update::Element;
  const auto value_at = [&](std::int64_t j) {
    if constexpr (sizeof(T) <= sizeof(*words)) {
      // A value is in the lower bytes of its word.
      if (has_values) return *reinterpret_cast<const T*>(words + j);
    }
    std::int64_t offsets[3];
    calculator.offsets(words[j], offsets);
    return static_cast<const T*>(plan.direct)[offsets[0]];
  };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // The condition is uniform in a warp.
  for (std::int64_t i = first_index(); i - lane < count; i += index_step()) {
    const bool is_present = i < count;
    const Key destination = destinations[is_present ? i : count - 1];
    const bool is_first = !is_present || i == 0 || destinations[i - 1] != destination;
    const unsigned firsts = __ballot_sync(0xffffffffu, is_first);
    if (!is_present || !is_first || destination == static_cast<Key>(plan.indexed_extent)) continue;
    const unsigned later = lane == 31 ? 0 : firsts >> (lane + 1);
    // The run ends at the next first position of the warp, or at a position after the warp.
    std::int64_t end = later != 0 ? i + __ffs(static_cast<int>(later)) : i + 32 - lane;
    if (later == 0) {
      while (end < count && destinations[end] == destination) ++end;
      if (end > count) end = count;
    }
    T& element = static_cast<T*>(plan.indexed)[destination];
    T value = element;
    std::int64_t j = i;
    for (; j + kRunStep <= end; j += kRunStep) {
      T step[kRunStep];
#pragma unroll
      for (int k = 0; k < kRunStep; ++k) step[k] = value_at(j + k);
#pragma unroll
      for (int k = 0; k < kRunStep; ++k) value = Update::apply(value, step[k]);
    }
    for (; j < end; ++j) value = Update::apply(value, value_at(j));
    element = value;
  }
}

// Makes the writes that have their destination's slot.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_slots_kernel(const __grid_constant__ ScatterKeys keys, const std::uint32_t* slots) {
  for (std::int64_t i = first_index(); i < keys.count; i += index_step()) {
    std::int64_t offsets[3];
    keys.calculator.offsets(static_cast<std::uint32_t>(i), offsets);
    const std::int64_t position = position_of(keys.plan, load_index(keys.plan, offsets[2]));
    if (!is_inside(keys.plan, position)) continue;
    const std::int64_t key = keys.key_of(position, offsets);
    if (slots[key] != static_cast<std::uint32_t>(i) + 1) continue;
    static_cast<T*>(keys.plan.indexed)[key] = static_cast<const T*>(keys.plan.direct)[offsets[0]];
  }
}

bool uses_slots(const IndexingPlan& plan, ScatterMode mode) {
  return mode == ScatterMode::replace && has_slots(plan.positions.numel, plan.indexed_extent);
}

// The data that moves with the keys: the values themselves if they are ready in the writes' order,
// or small.
SortedWords sorted_words(const IndexingPlan& plan) {
  if (plan.element_bytes == 2) return SortedWords::halves;
  return plan.element_bytes == 4 && plan.positions.ndim == 1 && plan.positions.strides[0][0] == 1
             ? SortedWords::ready
             : SortedWords::positions;
}

}  // namespace

bool has_short_rows(const IndexingPlan& plan) { return row_tiles(plan).tile > 0; }

void scatter_fibres(void* stream, const IndexingPlan& plan, ScatterMode mode) {
  const RowTiles tiles = row_tiles(plan);
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    if constexpr (sizeof(typename Update::Element) <= 8) {
      if (tiles.tile > 0) return launch_scatter_rows<Update>(stream, plan, tiles);
    }
    const std::int64_t begin[3] = {};
    for_each_piece(
        plan.fibres,
        [&](const StridedPlan<3>& piece, const std::int64_t(&offsets)[3]) {
          launch("scatter_fibres", stream, blocks_for(piece.numel), kThreads, 0,
                 scatter_fibres_kernel<Update>, plan_from(plan, offsets),
                 OffsetCalculator<3>(piece), static_cast<std::uint32_t>(piece.numel));
        },
        begin);
  });
}

std::size_t scatter_writes_bytes(const IndexingPlan& plan, ScatterMode mode) {
  if (is_atomic(mode, plan.dtype)) return 0;
  if (uses_slots(plan, mode)) return slot_bytes(plan.indexed_extent);
  return PositionSort(plan.positions.numel, plan.indexed_extent, nullptr,
                      sorted_words(plan) != SortedWords::ready)
      .bytes();
}

void scatter_writes(void* stream, const IndexingPlan& plan, ScatterMode mode, void* scratch) {
  if (is_atomic(mode, plan.dtype)) {
    scatter_atomic(stream, plan);
    return;
  }
  const auto count = static_cast<std::uint32_t>(plan.positions.numel);
  const ScatterKeys keys{plan, OffsetCalculator<3>(plan.positions), plan.index_stride,
                         plan.indexed_extent, count};
  if (uses_slots(plan, mode)) {
    auto* const slots = static_cast<std::uint32_t*>(scratch);
    claim_slots(stream, keys, slots);
    dispatch_word(plan.element_bytes, [&](auto tag) {
      using T = typename decltype(tag)::type;
      launch("scatter", stream, blocks_for(count), kThreads, 0, scatter_slots_kernel<T>, keys,
             slots);
    });
    return;
  }
  const SortedWords words = sorted_words(plan);
  const PositionSort sort(count, plan.indexed_extent, scratch, words != SortedWords::ready);
  sort_writes(stream, keys, sort, words, static_cast<const std::uint32_t*>(plan.direct));
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    sort.visit([&](auto*, auto*, auto* sorted_keys, const std::uint32_t* sorted) {
      using Key = std::remove_const_t<std::remove_pointer_t<decltype(sorted_keys)>>;
      launch("scatter_runs", stream, blocks_for(count), kThreads, 0,
             scatter_runs_kernel<Update, Key>, plan, keys.calculator, count, sorted_keys, sorted,
             words != SortedWords::positions);
    });
  });
}

}  // namespace gantry::kernels::cuda
