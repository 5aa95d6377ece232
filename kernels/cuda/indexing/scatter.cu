// Note [Deterministic scatter]
// Duplicate indices make the result depend on the order of writes: the last write wins, and
// floating sums round in that order. Atomics have no order, so only sums of integers use them.
// Otherwise there are four cases:
//  - few writes: Note [Owners of destinations];
//  - many or short fibres: one thread makes all writes of a fibre, in shared memory if the fibres
//    are short dense rows;
//  - fibres that a block sorts: Note [Tiles of fibres];
//  - few long fibres: where writes replace, only the last one is made, Note [Last write]. All other
//    writes: Note [Buckets of destinations].
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

// Note [Buckets of destinations]
// A bucket is a few neighbouring destinations. The writes are sorted stably by bucket: the sort
// looks at the higher bits of a destination only, so it has half the passes. One warp makes all
// writes of a bucket, 32 at a time. Lanes whose destinations may be equal take turns, in the order
// of their writes. If the writes are many, the bucket's elements stay in shared memory meanwhile.

constexpr int kBucketThreads = 128;
constexpr int kBucketWarps = kBucketThreads / 32;
// Shared memory of a bucket. A multiprocessor holds six blocks of four buckets.
constexpr int kBucketBytes = 8 << 10;
// At least so many bits are sorted: 4096 warps of 8448 that 132 multiprocessors hold at once.
constexpr int kFewestSortedBits = 12;
// Destinations with the same lowest bits take turns. Of 32 in 2^8, two lanes or three are alike.
constexpr int kTurnBits = 8;
// Writes of a lane that are in flight together.
constexpr int kWritesAhead = 4;

struct Buckets {
  std::uint32_t count;  // writes
  int bits;             // of a destination within its bucket
  bool is_held;         // in shared memory
  bool has_values;      // the words are values, else positions
};

// The first of `count` sorted keys that is in `bucket` or behind it. The lanes of a warp call.
template <class Key>
__device__ std::uint32_t bucket_begin(const Key* keys, const Buckets& buckets, Key bucket) {
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t begin = 0;
  std::uint32_t length = buckets.count;  // it is at most so far behind `begin`
  while (length > 0) {
    const std::uint32_t step = length / 32 + 1;
    const std::uint32_t probe = lane * step + step - 1;
    const bool is_before = probe < length && keys[begin + probe] >> buckets.bits < bucket;
    const auto before = static_cast<std::uint32_t>(__popc(__ballot_sync(0xffffffffu, is_before)));
    begin += before * step;
    length -= before * step;
    if (length > step - 1) length = step - 1;
  }
  return begin;
}

// The turn of the calling lane, for a key that is present.
template <class Key>
__device__ int turn_of(bool is_present, Key key) {
  unsigned alike = __ballot_sync(0xffffffffu, is_present);
#pragma unroll
  for (int bit = 0; bit < kTurnBits; ++bit) {
    const bool is_set = (key >> bit & 1) != 0;
    const unsigned set = __ballot_sync(0xffffffffu, is_set);
    alike &= is_set ? set : ~set;
  }
  return __popc(alike & ((1u << threadIdx.x % 32) - 1));
}

template <class Update, class Key>
__global__ void __launch_bounds__(kBucketThreads)
    scatter_buckets_kernel(const __grid_constant__ IndexingPlan plan,
                           const __grid_constant__ OffsetCalculator<3> calculator, Buckets buckets,
                           const Key* keys, const std::uint32_t* words) {
  using T = typename Update::Element;
  extern __shared__ __align__(16) unsigned char scatter_buckets_memory[];
  const auto extent = static_cast<Key>(plan.indexed_extent);  // the key of an index out of range
  const std::uint32_t warp = threadIdx.x / 32;
  const std::uint32_t lane = threadIdx.x % 32;
  const Key bucket = static_cast<Key>(blockIdx.x) * kBucketWarps + warp;
  const Key first = bucket << buckets.bits;
  if (bucket > extent >> buckets.bits) return;
  const std::uint32_t begin = bucket_begin<Key>(keys, buckets, bucket);
  const std::uint32_t end = bucket_begin<Key>(keys, buckets, bucket + 1);
  if (begin == end) return;

  const Key size = Key{1} << buckets.bits;
  const std::uint32_t held =
      buckets.is_held ? static_cast<std::uint32_t>(extent - first < size ? extent - first : size)
                      : 0;
  T* const indexed = static_cast<T*>(plan.indexed) + first;
  T* const elements = buckets.is_held
                          ? reinterpret_cast<T*>(scatter_buckets_memory) + (warp << buckets.bits)
                          : indexed;
#pragma unroll 8
  for (std::uint32_t i = lane; i < held; i += 32) elements[i] = indexed[i];
  __syncwarp();

  Key next[kWritesAhead];
  T values[kWritesAhead];
  const auto load = [&](std::uint32_t from) {
#pragma unroll
    for (int k = 0; k < kWritesAhead; ++k) {
      const std::uint32_t at = from + 32 * k + lane;
      next[k] = extent;
      if (at >= end) continue;
      next[k] = keys[at];
      if constexpr (sizeof(T) <= sizeof(*words)) {
        // A value is in the lower bytes of its word.
        if (buckets.has_values) values[k] = *reinterpret_cast<const T*>(words + at);
      }
      if (!buckets.has_values) {
        std::int64_t offsets[3];
        calculator.offsets(words[at], offsets);
        values[k] = static_cast<const T*>(plan.direct)[offsets[0]];
      }
    }
  };
  load(begin);
  for (std::uint32_t at = begin; at < end; at += 32 * kWritesAhead) {
    Key now[kWritesAhead];
    T value[kWritesAhead];
#pragma unroll
    for (int k = 0; k < kWritesAhead; ++k) {
      now[k] = next[k];
      value[k] = values[k];
    }
    load(at + 32 * kWritesAhead);
#pragma unroll
    for (int k = 0; k < kWritesAhead; ++k) {
      const bool is_present = now[k] != extent;
      const int turn = turn_of(is_present, now[k]);
      for (int t = 0; __any_sync(0xffffffffu, is_present && turn >= t); ++t) {
        if (is_present && turn == t) {
          T& element = elements[now[k] - first];
          element = Update::apply(element, value[k]);
        }
        __syncwarp();
      }
    }
  }
#pragma unroll 8
  for (std::uint32_t i = lane; i < held; i += 32) indexed[i] = elements[i];
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
  if (plan.element_bytes != 4) return SortedWords::positions;
  std::int64_t size = 1;
  for (int dim = 0; dim < plan.positions.ndim; ++dim) {
    if (plan.positions.strides[dim][0] != size) return SortedWords::positions;
    size *= plan.positions.sizes[dim];
  }
  return SortedWords::ready;
}

Buckets make_buckets(const IndexingPlan& plan) {
  Buckets buckets;
  buckets.count = static_cast<std::uint32_t>(plan.positions.numel);
  buckets.has_values = sorted_words(plan) != SortedWords::positions;
  // No others' elements lie between the destinations.
  const bool is_dense = plan.fibres.numel * plan.index_size == plan.indexed_extent;
  buckets.is_held = is_dense && plan.indexed_extent <= kMostPerWrite * plan.positions.numel;
  buckets.bits = 0;
  while (plan.indexed_extent >> (kFewestSortedBits + buckets.bits) != 0 &&
         (!buckets.is_held || plan.element_bytes << (buckets.bits + 1) <= kBucketBytes)) {
    ++buckets.bits;
  }
  return buckets;
}

PositionSort bucket_sort(const IndexingPlan& plan, void* scratch) {
  return PositionSort(plan.positions.numel, plan.indexed_extent, scratch,
                      sorted_words(plan) != SortedWords::ready, make_buckets(plan).bits);
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
  return bucket_sort(plan, nullptr).bytes();
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
  const PositionSort sort = bucket_sort(plan, scratch);
  sort_writes(stream, keys, sort, sorted_words(plan),
              static_cast<const std::uint32_t*>(plan.direct));
  const Buckets buckets = make_buckets(plan);
  const std::int64_t last = plan.indexed_extent >> buckets.bits;
  const auto blocks = static_cast<unsigned>(last / kBucketWarps + 1);
  const std::size_t bytes =
      buckets.is_held ? static_cast<std::size_t>(kBucketWarps * plan.element_bytes) << buckets.bits
                      : 0;
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    sort.visit([&](auto*, auto*, auto* sorted_keys, const std::uint32_t* sorted) {
      using Key = std::remove_const_t<std::remove_pointer_t<decltype(sorted_keys)>>;
      launch("scatter_buckets", stream, blocks, kBucketThreads, bytes,
             scatter_buckets_kernel<Update, Key>, plan, keys.calculator, buckets, sorted_keys,
             sorted);
    });
  });
}

}  // namespace gantry::kernels::cuda
