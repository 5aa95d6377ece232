// Softmax of short fibres: a thread has a fibre in its registers.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/softmax/softmax_row.cuh"

namespace gantry::kernels::cuda {

namespace {

// Longest fibre of a thread, and the shortest of the lengths for which there are kernels.
template <class T>
constexpr int kThreadFibre = sizeof(T) == 8 ? 32 : 64;
constexpr int kLeastThreadFibre = 8;
// Threads of a block, each of which has a fibre.
constexpr int kTileFibres = 128;
constexpr int kColumnFibres = 128;
// Blocks of a multiprocessor, of which each thread has kMost values in registers. The addresses of
// columns take registers, too.
template <class T, int kMost>
constexpr int kTileBlocks = sizeof(T) == 8 ? (kMost <= 16 ? 5 : 4)
                            : kMost <= 8   ? 12
                            : kMost <= 32  ? 7
                                           : 5;
template <class T, int kMost>
constexpr int kColumnBlocks = sizeof(T) == 8 ? 3
                              : kMost <= 16  ? 8
                              : kMost <= 32  ? 6
                                             : 4;

// The tree of Note [Reduction order] over kMost accumulators, from the one at kFirst on in steps of
// kStep. leaf(j) gives accumulator j. Depth first: few sums are in registers at a time.
template <int kMost, int kFirst, int kStep, class Leaf>
__device__ __forceinline__ auto sum_leaves(const Leaf& leaf) {
  if constexpr (kStep == kMost) {
    return leaf(kFirst);
  } else {
    const auto left = sum_leaves<kMost, kFirst, 2 * kStep>(leaf);
    return SoftmaxSum<std::decay_t<decltype(left)>>::combine(
        left, sum_leaves<kMost, kFirst + kStep, 2 * kStep>(leaf));
  }
}

// True if each fibre for which there is a kernel of kMost elements has element k.
template <int kMost>
GANTRY_HD constexpr bool is_always_present(int k) {
  return k < (kMost == kLeastThreadFibre ? 1 : kMost / 2);
}

// The softmax of `length` values, of which values[length] and later ones are absent. The sum has
// the exponential 0 for these, which changes no sum.
template <int kMost, class Acc>
__device__ void softmax_in_thread(Acc (&values)[kMost], int length, bool logarithm) {
  using Max = RowMax<Acc>;
  constexpr int kPack = 4;
  Acc maximum = values[0];
#pragma unroll
  for (int k = 1; k < kMost; ++k) {
    if (is_always_present<kMost>(k) || k < length) maximum = Max::combine(maximum, values[k]);
  }
  const Acc sum = sum_leaves<kMost, 0, 1>([&](int k) {
    Acc power = 0;
    if (is_always_present<kMost>(k) || k < length) {
      const Acc shifted = values[k] - maximum;
      power = exponential(shifted);
      values[k] = logarithm ? shifted : power;
    }
    return power;
  });
  const RowEnd<Acc> end(logarithm, sum);
#pragma unroll
  for (int first = 0; first < kMost; first += kPack) {
    if (is_always_present<kMost>(first) || first < length) {
      StoredPack<Acc, kPack> pack;
#pragma unroll
      for (int v = 0; v < kPack; ++v) pack.values[v] = values[first + v];
      end(pack);
#pragma unroll
      for (int v = 0; v < kPack; ++v) values[first + v] = pack.values[v];
    }
  }
}

// Fibres in slabs of `inner`, each slab contiguous and after the preceding one. A tile has `slabs`.
struct FibreTiles {
  int inner = 1;
  int slabs = 0;
  std::int64_t tiles = 0;
  bool is_wide = false;  // all tiles of both operands begin on 16 bytes
  // Rows are apart by one word of shared memory, so that their threads use different banks: words
  // of a row, and 2^32 / words rounded up. 0: there is no such word.
  int row_words = 0;
  std::uint32_t inverse = 0;
};

template <class T>
using StagedWord = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Calls copy(number of a unit in memory, its number in shared memory) for the units of a tile of
// `count` elements that the thread copies: vectors, words or elements.
template <class T, class Copy>
__device__ void for_each_unit(const FibreTiles& tiles, int count, const Copy& copy) {
  constexpr int kWords = static_cast<int>(sizeof(StagedWord<T>) / sizeof(T));
  const int thread = static_cast<int>(threadIdx.x);
  if (tiles.row_words > 0) {  // a tile has whole rows, and a row whole words
    for (int i = thread; i < count / kWords; i += kTileFibres) {
      const auto row = static_cast<int>(__umulhi(static_cast<std::uint32_t>(i), tiles.inverse));
      copy(TypeTag<StagedWord<T>>{}, i, i + row);
    }
    return;
  }
  int first = thread;
  if (tiles.is_wide) {
    for (int i = thread; i < count / kWide<T>; i += kTileFibres) {
      copy(TypeTag<StoredPack<T, kWide<T>>>{}, i, i);
    }
    first += count / kWide<T> * kWide<T>;
  }
#pragma unroll 4
  for (int i = first; i < count; i += kTileFibres) copy(TypeTag<T>{}, i, i);
}

// A block has a tile of fibres in its shared memory, and reads and writes it as it lies in memory.
template <class T, int kMost>
__global__ void __launch_bounds__(kTileFibres, kTileBlocks<T, kMost>)
    softmax_tiles(const __grid_constant__ FibrePlan plan, const __grid_constant__ FibreTiles tiles,
                  bool logarithm) {
  using Acc = AccumulatorType<T>;
  constexpr int kWords = static_cast<int>(sizeof(StagedWord<T>) / sizeof(T));
  extern __shared__ __align__(16) unsigned char memory[];
  T* const staged = reinterpret_cast<T*>(memory);
  const int thread = static_cast<int>(threadIdx.x);
  const int length = static_cast<int>(plan.length);
  const int fibres = tiles.slabs * tiles.inner;
  const int slab = thread / tiles.inner;
  T* const own =
      staged + (tiles.inner > 1 ? slab * (length - 1) * tiles.inner + thread
                                : thread * (length + (tiles.row_words > 0 ? kWords : 0)));
  for (std::int64_t tile = blockIdx.x; tile < tiles.tiles; tile += gridDim.x) {
    const std::int64_t first = tile * fibres;
    const std::int64_t rest = plan.count - first;
    const int present = rest < fibres ? static_cast<int>(rest) : fibres;
    const T* in = static_cast<const T*>(plan.in.data) + first * length;
    T* out = static_cast<T*>(plan.out.data) + first * length;
    for_each_unit<T>(tiles, present * length, [&](auto tag, int at, int to) {
      using Unit = typename decltype(tag)::type;
      Unit* place = reinterpret_cast<Unit*>(staged) + to;
      const Unit* from = reinterpret_cast<const Unit*>(in) + at;
      if constexpr (sizeof(Unit) >= 4) {
        __pipeline_memcpy_async(place, from, sizeof(Unit));
      } else {
        *place = *from;
      }
    });
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (thread < present) {
      Acc values[kMost];
#pragma unroll
      for (int k = 0; k < kMost; ++k) {
        values[k] = RowMax<Acc>::neutral();
        if (is_always_present<kMost>(k) || k < length) {
          values[k] = static_cast<Acc>(own[k * tiles.inner]);
        }
      }
      softmax_in_thread(values, length, logarithm);
#pragma unroll
      for (int k = 0; k < kMost; ++k) {
        if (is_always_present<kMost>(k) || k < length) {
          own[k * tiles.inner] = stored<T>(values[k]);
        }
      }
    }
    __syncthreads();
    for_each_unit<T>(tiles, present * length, [&](auto tag, int at, int from) {
      using Unit = typename decltype(tag)::type;
      reinterpret_cast<Unit*>(out)[at] = reinterpret_cast<const Unit*>(staged)[from];
    });
    __syncthreads();  // the next tile overwrites this one
  }
}

// Neighbouring threads have neighbouring fibres, which lie side by side.
template <class T, int kMost>
__global__ void __launch_bounds__(kColumnFibres, kColumnBlocks<T, kMost>)
    softmax_thread_columns(const __grid_constant__ FibrePlan plan, bool logarithm) {
  using Acc = AccumulatorType<T>;
  const int length = static_cast<int>(plan.length);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kColumnFibres;
  for (std::int64_t fibre = static_cast<std::int64_t>(blockIdx.x) * kColumnFibres + threadIdx.x;
       fibre < plan.count; fibre += step) {
    const T* in = static_cast<const T*>(plan.in.data) + near_offset(plan.in.outer, fibre);
    T* out = static_cast<T*>(plan.out.data) + near_offset(plan.out.outer, fibre);
    T loaded[kMost];
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (is_always_present<kMost>(k) || k < length) loaded[k] = in[k * plan.in.stride];
    }
    Acc values[kMost];
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      values[k] = RowMax<Acc>::neutral();
      if (is_always_present<kMost>(k) || k < length) values[k] = static_cast<Acc>(loaded[k]);
    }
    softmax_in_thread(values, length, logarithm);
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (is_always_present<kMost>(k) || k < length) {
        out[k * plan.out.stride] = stored<T>(values[k]);
      }
    }
  }
}

// Calls f(the smallest kernel length of at least `length`).
template <class T, class F>
void with_thread_length(std::int64_t length, const F& f) {
  if (length <= 8) return f(std::integral_constant<int, 8>{});
  if (length <= 16) return f(std::integral_constant<int, 16>{});
  if constexpr (kThreadFibre<T> == 64) {
    if (length > 32) return f(std::integral_constant<int, 64>{});
  }
  f(std::integral_constant<int, 32>{});
}

// The size of the slabs of dense fibres: fibres of one slab lie side by side, and slabs follow each
// other. 0: the fibres are not dense. Precondition: dims are merged.
inline int dense_slab(const Fibres& fibres, std::int64_t length) {
  const StridedIndex& outer = fibres.outer;
  if (outer.ndim == 0) return fibres.stride == 1 || length == 1 ? 1 : 0;
  const std::int64_t inner = outer.sizes[outer.ndim - 1];
  if (outer.ndim == 1 && fibres.stride == 1 && outer.strides[0] == length) return 1;
  const bool is_slab = outer.strides[outer.ndim - 1] == 1 && fibres.stride == inner &&
                       (outer.ndim == 1 || (outer.ndim == 2 && outer.strides[0] == inner * length));
  return is_slab && inner <= kTileFibres ? static_cast<int>(inner) : 0;
}

template <class T>
FibreTiles make_fibre_tiles(const FibrePlan& plan, int inner) {
  constexpr int V = kWide<T>;
  constexpr int kWords = static_cast<int>(sizeof(StagedWord<T>) / sizeof(T));
  FibreTiles tiles;
  const auto length = static_cast<int>(plan.length);
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  };
  tiles.inner = inner;
  tiles.slabs = kTileFibres / inner;
  int multiple = 1;  // of slabs that end on 16 bytes
  while (multiple * inner * length % V != 0) multiple *= 2;
  tiles.is_wide = is_aligned(plan.in.data) && is_aligned(plan.out.data) && multiple <= tiles.slabs;
  if (tiles.is_wide) tiles.slabs = tiles.slabs / multiple * multiple;
  if (tiles.is_wide && inner == 1 && length % V == 0) {
    tiles.row_words = length / kWords;
    tiles.inverse = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + tiles.row_words - 1) /
                                               static_cast<std::uint32_t>(tiles.row_words));
  }
  const std::int64_t fibres = std::int64_t{tiles.slabs} * inner;
  tiles.tiles = (plan.count + fibres - 1) / fibres;
  return tiles;
}

template <class T>
void launch_tiles(void* stream, bool logarithm, const FibrePlan& plan, int inner) {
  const FibreTiles tiles = make_fibre_tiles<T>(plan, inner);
  const std::int64_t words_apart = tiles.row_words > 0 ? 1 : 0;
  const auto bytes =
      static_cast<std::size_t>(tiles.slabs * inner) *
      (static_cast<std::size_t>(plan.length) * sizeof(T) + words_apart * sizeof(StagedWord<T>));
  with_thread_length<T>(plan.length, [&](auto most) {
    launch("softmax_tiles", stream, blocks_for(tiles.tiles * kThreads), kTileFibres, bytes,
           softmax_tiles<T, most.value>, plan, tiles, logarithm);
  });
}

template <class T>
void launch_thread_columns(void* stream, bool logarithm, const FibrePlan& plan) {
  with_thread_length<T>(plan.length, [&](auto most) {
    launch("softmax_thread_columns", stream,
           blocks_for((plan.count + kColumnFibres - 1) / kColumnFibres * kThreads), kColumnFibres,
           0, softmax_thread_columns<T, most.value>, plan, logarithm);
  });
}

}  // namespace

}  // namespace gantry::kernels::cuda
