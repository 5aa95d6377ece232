// Sorting of fibres that a block holds: Note [Radix sort in a block].
// Keys of 16 bits, and keys of a fibre whose largest and smallest one differ by less than 2^16,
// share a word with their places. Others lie beside them. All keys are relative to the smallest
// one, so a sort of integers in a small range has few passes.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/block_radix.cuh"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// The largest grid; blocks take several fibres.
constexpr std::int64_t kMostSortBlocks = std::int64_t{1} << 24;
// Elements of a thread that it loads or stores at the same time.
constexpr int kInFlight = 6;
// Shared memory of a block without leave.
constexpr std::size_t kPlainBytes = 48 << 10;

// Elements of a thread, the most threads of a block, and blocks of a multiprocessor.
template <int kItemsOf, int kThreadsOf, int kBlocksOf>
struct BlockShape {
  static constexpr int kItems = kItemsOf;
  static constexpr int kMostThreads = kThreadsOf;
  static constexpr int kBlocks = kBlocksOf;
};

template <class U>
struct KeyRange {
  U least;
  U most;
};

// The range of the keys of all threads. `shared` has room for one of each warp.
template <class U>
__device__ KeyRange<U> range_of_block(KeyRange<U> range, KeyRange<U>* shared) {
  const auto of_warp = [](KeyRange<U> own) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const U least = __shfl_xor_sync(0xffffffffu, own.least, mask);
      const U most = __shfl_xor_sync(0xffffffffu, own.most, mask);
      if (least < own.least) own.least = least;
      if (most > own.most) own.most = most;
    }
    return own;
  };
  const auto lane = threadIdx.x % 32;
  range = of_warp(range);
  if (lane == 0) shared[threadIdx.x / 32] = range;
  __syncthreads();
  return of_warp(shared[lane < blockDim.x / 32 ? lane : 0]);
}

// Calls store(at, key) with the keys of the calling thread's elements of a fibre. Several loads are
// in flight at the same time.
template <int kItems, class U, class Store>
__device__ void load_keys(const SortPlan& plan, const KeyOrder<U>& order,
                          const SortCandidates& candidates, std::int64_t fibre,
                          const Store& store) {
  const int length = static_cast<int>(plan.fibres.length);
  const bool is_ready = candidates.keys != nullptr;
  const U* const from = is_ready ? static_cast<const U*>(candidates.keys) + fibre * length
                                 : sort_input<U>(plan, fibre);
  const std::int64_t stride = is_ready ? 1 : plan.fibres.in.stride;
  const auto place = [](int i) {
    return i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  };
  for (int first = 0; first < kItems; first += kInFlight) {
    U batch[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (place(first + i) < length) batch[i] = from[place(first + i) * stride];
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (place(first + i) >= length) break;
      store(place(first + i), is_ready ? batch[i] : order.key(batch[i]));
    }
  }
}

// Writes the elements of a sorted fibre. key_of(rank) and place_of(rank) tell the order.
template <int kItems, class U, class KeyOf, class PlaceOf>
__device__ void write_sorted(const SortPlan& plan, const KeyOrder<U>& order,
                             const SortCandidates& candidates, std::int64_t fibre,
                             const KeyOf& key_of, const PlaceOf& place_of) {
  const int length = static_cast<int>(plan.fibres.length);
  const U* const in = sort_input<U>(plan, fibre);
  const std::int64_t first = first_rank(plan, fibre);
  const SortOutput<U> out = sort_output<U>(plan, fibre);
#pragma unroll 4
  for (int i = 0; i < kItems; ++i) {
    const int rank = i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    const std::int64_t at = rank - first;
    if (rank >= length || at < 0 || at >= plan.count) continue;
    std::int64_t position = place_of(rank);
    if (candidates.keys != nullptr) position = candidates.positions[fibre * length + position];
    const U key = key_of(rank);
    const U value = order.is_exact(key) ? order.element(key) : in[position * plan.fibres.in.stride];
    out.write(at, value, position);
  }
}

template <class U, class Shape>
__global__ void __launch_bounds__(Shape::kMostThreads, Shape::kBlocks)
    sort_blocks_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order, int bits,
                       SortCandidates candidates) {
  constexpr int kItems = Shape::kItems;
  constexpr bool kIsNarrow = sizeof(U) <= 2;
  extern __shared__ __align__(16) unsigned char sort_blocks_memory[];
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int length = static_cast<int>(plan.fibres.length);
  auto* const keys = reinterpret_cast<U*>(sort_blocks_memory);
  auto* const words = reinterpret_cast<std::uint32_t*>(sort_blocks_memory);
  constexpr int kWidth = kIsNarrow ? 4 : static_cast<int>(sizeof(U));
  auto* const counters =
      reinterpret_cast<std::uint32_t*>(sort_blocks_memory + kWidth * kItems * threads);
  auto* const places = reinterpret_cast<std::uint16_t*>(counters + counter_words(threads));
  const auto place_in_word = [&](int rank) { return words[rank] & 0xffff; };
  for (std::int64_t fibre = blockIdx.x; fibre < plan.fibres.count; fibre += gridDim.x) {
    if constexpr (kIsNarrow) {
      load_keys<kItems, U>(plan, order, candidates, fibre, [&](int at, U key) {
        words[at] = static_cast<std::uint32_t>(key) << 16 | static_cast<std::uint32_t>(at);
      });
      for (int at = length / threads * threads + thread; at < kItems * threads; at += threads) {
        if (at >= length) words[at] = 0xffff0000u | static_cast<std::uint32_t>(at);
      }
      __syncthreads();
      sort_words<kItems>(words, counters, 16, 16 + bits);
      write_sorted<kItems>(
          plan, order, candidates, fibre,
          [&](int rank) { return static_cast<U>(words[rank] >> 16); }, place_in_word);
    } else {
      KeyRange<U> range = {static_cast<U>(~U(0)), 0};
      load_keys<kItems, U>(plan, order, candidates, fibre, [&](int at, U key) {
        keys[at] = key;
        if (key < range.least) range.least = key;
        if (key > range.most) range.most = key;
      });
      range = range_of_block(range, reinterpret_cast<KeyRange<U>*>(counters));
      const U most = range.most - range.least;
      const int differing = 64 - __clzll(static_cast<long long>(most));
      if (differing <= 16) {
        std::uint32_t own[kItems];
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int at = i * threads + thread;
          own[i] = at < length ? static_cast<std::uint32_t>(keys[at] - range.least) : 0xffff;
        }
        __syncthreads();  // the words overwrite the keys
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int at = i * threads + thread;
          words[at] = own[i] << 16 | static_cast<std::uint32_t>(at);
        }
        __syncthreads();
        sort_words<kItems>(words, counters, 16, 16 + differing);
        write_sorted<kItems>(
            plan, order, candidates, fibre,
            [&](int rank) { return static_cast<U>(range.least + (words[rank] >> 16)); },
            place_in_word);
      } else {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int at = i * threads + thread;
          keys[at] = at < length ? static_cast<U>(keys[at] - range.least) : static_cast<U>(~U(0));
          places[at] = static_cast<std::uint16_t>(at);
        }
        __syncthreads();
        sort_keys<kItems>(keys, places, counters, differing);
        write_sorted<kItems>(
            plan, order, candidates, fibre,
            [&](int rank) { return static_cast<U>(range.least + keys[rank]); },
            [&](int rank) { return places[rank]; });
      }
    }
    __syncthreads();  // the next fibre overwrites this one
  }
}

template <class U, class Shape>
void launch_blocks(void* stream, const SortPlan& plan, const SortCandidates& candidates) {
  constexpr int kWarpItems = 32 * Shape::kItems;
  const auto threads = static_cast<int>((plan.fibres.length + kWarpItems - 1) / kWarpItems) * 32;
  constexpr int kWidth = sizeof(U) <= 2 ? 4 : static_cast<int>(sizeof(U)) + 2;
  const std::size_t bytes = static_cast<std::size_t>(kWidth) * Shape::kItems * threads +
                            sizeof(std::uint32_t) * counter_words(threads);
  const auto kernel = sort_blocks_kernel<U, Shape>;
  if (bytes > kPlainBytes) {
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error("sort_blocks", stream, status);
    }
  }
  const auto order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
  const std::int64_t blocks =
      plan.fibres.count < kMostSortBlocks ? plan.fibres.count : kMostSortBlocks;
  launch("sort_blocks", stream, static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
         bytes, kernel, plan, order, order.bits(), candidates);
}

// Few and many elements of a thread. A fibre takes the shape that leaves fewer places empty, and
// the larger one if it is much the same.
template <int kThreadsOf, int kBlocksOf>
using SmallShape = BlockShape<9, kThreadsOf, kBlocksOf>;
template <int kThreadsOf, int kBlocksOf>
using LargeShape = BlockShape<17, kThreadsOf, kBlocksOf>;

// The places of blocks whose warps have `warp_items` each.
constexpr std::int64_t places_of(std::int64_t length, std::int64_t warp_items) {
  return (length + warp_items - 1) / warp_items * warp_items;
}

}  // namespace

void sort_in_blocks(void* stream, const SortPlan& plan, const SortCandidates& candidates) {
  const std::int64_t length = plan.fibres.length;
  if (length <= kWarpSort) return sort_in_warps(stream, plan, candidates);
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    if (length > 17 * 256) {
      // Registers of 1024 threads hold 17 words; others take fewer threads.
      using Longest = std::conditional_t<
          sizeof(U) <= 2, LargeShape<1024, 1>,
          std::conditional_t<sizeof(U) == 4, BlockShape<33, 512, 1>, LargeShape<512, 1>>>;
      static_assert(Longest::kItems * Longest::kMostThreads >= longest_block_sort(sizeof(U)));
      return launch_blocks<U, Longest>(stream, plan, candidates);
    }
    if (length <= 9 * 256 && 5 * places_of(length, 9 * 32) < 4 * places_of(length, 17 * 32)) {
      return launch_blocks<U, SmallShape<256, 3>>(stream, plan, candidates);
    }
    launch_blocks<U, LargeShape<256, sizeof(U) == 8 ? 2 : 3>>(stream, plan, candidates);
  });
}

}  // namespace gantry::kernels::cuda
