#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/arg_key.cuh"
#include "kernels/cuda/reductions/last_block.cuh"
#include "kernels/input.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Elements of a wide access of arg_reduce_rows, and the accesses that a thread has in flight.
template <class T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kBatch = sizeof(T) == 1 ? 2 : 4;
// Elements that `threads` threads have in flight.
template <class T, int threads>
constexpr int kTile = threads* kVector<T>* kBatch<T>;

// The best element so far: its key, and its position in the chunk. Position -1: none.
template <class K>
struct Best {
  K key;
  std::int32_t at;
};

// Of elements in increasing order of position, the first of the largest stays. Precondition: `best`
// was made by start().
template <class K>
__device__ void take(Best<K>& best, K key, std::int32_t at) {
  if (precedes(true, key, best.key)) best = {key, at};
}

// The preferred one of two keys.
template <class K>
__device__ K larger_key(K a, K b) {
  if constexpr (std::is_same_v<K, float>) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  } else {
    return precedes(true, b, a) ? b : a;
  }
}

// True for keys of which neither is preferred.
template <class K>
__device__ bool is_same_key(K a, K b) {
  return a == b || (a != a && b != b);
}

// A state whose position is right even if no element is above the lowest key.
template <class K>
__device__ Best<K> start(int first, int count) {
  return {lowest_key<K>(), first < count ? first : -1};
}

template <class K>
__device__ Best<K> better(const Best<K>& a, const Best<K>& b) {
  if (b.at < 0) return a;
  if (a.at < 0 || precedes(true, b.key, a.key)) return b;
  if (precedes(true, a.key, b.key)) return a;
  return a.at < b.at ? a : b;
}

// The best of a warp, in its first thread. Every thread of the warp calls.
template <class K>
__device__ Best<K> best_of_warp(Best<K> best) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    const Best<K> other{__shfl_down_sync(0xffffffffu, best.key, half),
                        __shfl_down_sync(0xffffffffu, best.at, half)};
    best = better(best, other);
  }
  return best;
}

// The best of a block of kThreads threads, in thread 0. Every thread calls.
template <class K>
__device__ Best<K> best_of_block(Best<K> best) {
  __shared__ Best<K> shared[kThreads / 32];
  best = best_of_warp(best);
  __syncthreads();  // the previous call may still read the shared array
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % 32 == 0) shared[thread / 32] = best;
  __syncthreads();
  if (thread >= 32) return best;
  return best_of_warp(thread < kThreads / 32 ? shared[thread] : Best<K>{lowest_key<K>(), -1});
}

// Not inlined: several places end with it.
template <class T>
__device__ __noinline__ void write_result(const FibrePlan& plan, const Fibres& indices,
                                          std::int64_t fibre, const T* in, std::int64_t index) {
  static_cast<std::int64_t*>(indices.data)[indices.outer.offset(fibre)] = index;
  if (plan.out.data != nullptr) {
    static_cast<T*>(plan.out.data)[plan.out.outer.offset(fibre)] =
        stored_value(in[index * plan.in.stride]);
  }
}

// The best among the chunks of one fibre for a thread that looks at every `step`th.
template <class T>
__device__ Best<Key<T>> best_candidate(const KeyOf<T>& key_of, const ArgPartials& partials,
                                       std::int64_t fibre, const T* in, std::int64_t stride,
                                       int first, int step) {
  const auto chunks = static_cast<int>(partials.chunks);
  Best<Key<T>> best = start<Key<T>>(first, chunks);
  for (int c = first; c < chunks; c += step) {
    const std::int64_t index = __ldcg(partials.candidates + fibre * partials.chunks + c);
    take(best, key_of(in[index * stride]), c);
  }
  return best;
}

// Takes in the vectors of one tile, of which vector i has the elements from `at` + i * `step` on. A
// tile that is not full has those that end within `count`. Only the best key is computed; the
// position is looked for if that key is above all before, which is seldom.
template <int kStep, bool kFull, class T, class Vector>
__device__ void take_tile(Best<Key<T>>& best, const KeyOf<T>& key_of, const Vector* vectors, int at,
                          int count) {
  constexpr int V = kVector<T>;
  const auto is_present = [&](int i) { return kFull || at + i * kStep * V + V <= count; };
  Vector batch[kBatch<T>];
#pragma unroll
  for (int i = 0; i < kBatch<T>; ++i) {
    if (is_present(i)) batch[i] = vectors[i * kStep];
  }
  Key<T> most = lowest_key<Key<T>>();
#pragma unroll
  for (int i = 0; i < kBatch<T>; ++i) {
    if (is_present(i)) {
#pragma unroll
      for (int j = 0; j < V; ++j) most = larger_key(most, key_of(batch[i].values[j]));
    }
  }
  if (!precedes(true, most, best.key)) return;
  int first = 0;
#pragma unroll
  for (int i = kBatch<T> - 1; i >= 0; --i) {
    if (is_present(i)) {
#pragma unroll
      for (int j = V - 1; j >= 0; --j) {
        if (is_same_key(key_of(batch[i].values[j]), most)) first = i * kStep * V + j;
      }
    }
  }
  best = {most, at + first};
}

// kFibreThreads threads, a warp or a block, find the best element of one chunk of one fibre. Dense
// fibres are aligned for vectors. A warp has whole fibres.
template <class T, bool kDense, int kFibreThreads>
__global__ void __launch_bounds__(kThreads, 4)
    arg_reduce_rows(const __grid_constant__ FibrePlan plan, const __grid_constant__ Fibres indices,
                    const KeyOf<T> key_of, const __grid_constant__ ArgPartials partials) {
  static_assert(kFibreThreads == 32 || kFibreThreads == kThreads);
  constexpr int kFibres = kThreads / kFibreThreads;  // that the block has at a time
  const int thread = static_cast<int>(threadIdx.x) % kFibreThreads;
  const std::int64_t tasks = plan.count * partials.chunks;
  for (std::int64_t task = static_cast<std::int64_t>(blockIdx.x) * kFibres +
                           static_cast<int>(threadIdx.x) / kFibreThreads;
       task < tasks; task += static_cast<std::int64_t>(gridDim.x) * kFibres) {
    const std::int64_t fibre = partials.chunks == 1 ? task : task / partials.chunks;
    const std::int64_t chunk = task - fibre * partials.chunks;
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    const std::int64_t first = chunk * partials.chunk_length;
    const std::int64_t rest = plan.length - first;
    const int count = static_cast<int>(rest < partials.chunk_length ? rest : partials.chunk_length);
    Best<Key<T>> best;
    if constexpr (kDense) {
      constexpr int V = kVector<T>;
      constexpr int kElements = kTile<T, kFibreThreads>;
      const auto* vectors = reinterpret_cast<const StoredPack<T, V>*>(in + first) + thread;
      best = start<Key<T>>(V * thread, count);
      int done = 0;  // elements
      for (; count - done >= kElements; done += kElements, vectors += kElements / V) {
        take_tile<kFibreThreads, true>(best, key_of, vectors, done + thread * V, count);
      }
      if (count - done >= V) {
        take_tile<kFibreThreads, false>(best, key_of, vectors, done + thread * V, count);
      }
      const int last = count / V * V + thread;  // the rest is shorter than a vector
      if (last < count) {
        const Best<Key<T>> own{key_of(in[first + last]), last};
        best = better(best, own);
      }
    } else {
      best = start<Key<T>>(thread, count);
#pragma unroll 8
      for (int k = thread; k < count; k += kFibreThreads)
        take(best, key_of(in[(first + k) * plan.in.stride]), k);
    }
    if constexpr (kFibreThreads == 32) {
      best = best_of_warp(best);
      if (thread == 0) write_result(plan, indices, fibre, in, best.at);
    } else {
      best = best_of_block(best);
      if (partials.chunks == 1) {
        if (thread == 0) write_result(plan, indices, fibre, in, best.at);
        continue;
      }
      if (thread == 0) partials.candidates[task] = first + best.at;
      if (!is_last_block(partials.counters, fibre, static_cast<std::uint32_t>(partials.chunks))) {
        continue;
      }
      best = best_of_block(
          best_candidate(key_of, partials, fibre, in, plan.in.stride, thread, kThreads));
      if (thread == 0) {
        write_result(plan, indices, fibre, in,
                     __ldcg(partials.candidates + fibre * partials.chunks + best.at));
      }
    }
  }
}

// True if every fibre is dense and begins on a multiple of a vector.
template <class T>
bool has_vectors(const FibrePlan& plan) {
  if (plan.in.stride != 1) return false;
  if (reinterpret_cast<std::uintptr_t>(plan.in.data) % alignof(StoredPack<T, kVector<T>>) != 0) {
    return false;
  }
  for (int d = 0; d < plan.in.outer.ndim; ++d) {
    if (plan.in.outer.sizes[d] > 1 && plan.in.outer.strides[d] % kVector<T> != 0) return false;
  }
  return true;
}

// Blocks of arg_reduce_rows that fill a GPU twice, and the multiple of all kinds of tiles.
constexpr std::int64_t kRowBlocks = 2 * 4 * 132;
constexpr std::int64_t kRowChunk = 4096;
constexpr std::int64_t kMostArgChunk = std::int64_t{1} << 30;  // positions have 32 bits
// Longest fibre that a warp reduces, and longest if there are so many that their warps fill a GPU.
constexpr std::int64_t kWarpFibre = 2048;
constexpr std::int64_t kLongWarpFibre = 16384;
constexpr std::int64_t kManyFibres = 8192;

// True if a warp is to reduce a fibre: it waits for no other one. Fewer, long fibres need a block
// each.
bool is_for_warps(const FibrePlan& plan, const ArgPartials& partials) {
  return partials.chunks == 1 &&
         plan.length <= (plan.count < kManyFibres ? kWarpFibre : kLongWarpFibre);
}

}  // namespace

std::int64_t arg_chunk_length(const FibrePlan& plan) {
  // Even shares, so that no block ends much later than the others.
  const std::int64_t share = plan.length / kRowBlocks * plan.count;
  const std::int64_t length = (share + kRowChunk - 1) / kRowChunk * kRowChunk;
  return length < kRowChunk ? kRowChunk : length < kMostArgChunk ? length : kMostArgChunk;
}

void arg_reduce(void* stream, bool largest, const FibrePlan& plan, const Fibres& indices,
                const ArgPartials& partials) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const KeyOf<T> key_of{largest};
    const auto run = [&](auto kernel, int fibre_threads) {
      launch("arg_reduce_rows", stream, blocks_for(plan.count * partials.chunks * fibre_threads),
             kThreads, 0, kernel, plan, indices, key_of, partials);
    };
    if (!has_vectors<T>(plan)) {
      run(arg_reduce_rows<T, false, kThreads>, kThreads);
    } else if (is_for_warps(plan, partials)) {
      run(arg_reduce_rows<T, true, 32>, 32);
    } else {
      run(arg_reduce_rows<T, true, kThreads>, kThreads);
    }
  });
}

}  // namespace gantry::kernels::cuda
