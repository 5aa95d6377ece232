// A thread block of the GPU as algorithms of collectives see it; see Note [Blocks].
#pragma once

#include <cstdint>

#include "collectives/cuda/crew.cuh"
#include "collectives/cuda/fold.cuh"

namespace gantry::protocol {

inline constexpr int kThreads = 512;
// Of kernels whose blocks have a warp that tells.
inline constexpr int kTellers = 32;

// Threads may be 0: as many as were launched. `Tellers` more, a warp or none, do what is done for
// each rank, which is to signal and to wait for signals, and none of the copies and folds: so that
// these need not wait for it.
template <int Threads = kThreads, int Tellers = 0>
class CudaBlock : public CudaWords {
 public:
  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ bool is_leader() const { return threadIdx.x == 0; }
  __device__ bool is_stopped() const { return false; }

  template <class F>
  __device__ void for_each(std::int64_t n, F f) {
    GANTRY_ROLLED
    for (std::int64_t i = threadIdx.x; i < n; i += threads()) f(i);
  }
  // Lines of a warp lie side by side; all its threads come along, past the last one, too.
  template <class F>
  __device__ void for_each_line(std::int32_t n, F f) {
    constexpr int kWarpLines = 32 / kLineThreads;
    const auto lane = static_cast<int>(threadIdx.x) % 32;
    GANTRY_ROLLED
    for (std::int32_t i = static_cast<int>(threadIdx.x) / 32 * kWarpLines; i < n;
         i += threads() / kLineThreads) {
      f(i + lane / kLineThreads);
    }
  }
  // The last warp, which has the least else to do.
  template <class F>
  __device__ void for_each_rank(int n, F f) {
    const int p = static_cast<int>(threadIdx.x) - (threads() - 32);
    if (p >= 0 && p < n) f(p);
  }
  template <class F>
  __device__ bool each_finds(int n, F f) {
    if (tells()) return true;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool all = __all_sync(0xffffffff, lane >= n || f(lane)) != 0;
    __syncwarp();  // the vote alone orders no memory
    return all;
  }
  __device__ void sync() { __syncthreads(); }
  __device__ bool any(bool flag) { return __syncthreads_or(static_cast<int>(flag)) != 0; }

  // Once in a kernel.
  __device__ std::uint64_t from_leader(std::uint64_t value) {
    __shared__ std::uint64_t shared;
    if (is_leader()) shared = value;
    sync();
    return shared;
  }

  template <class RunOf>
  __device__ void copy(int runs, std::int64_t most, const RunOf& run_of) {
    if (tells()) return;
    constexpr std::int64_t kPiece = cuda::kPieceBytes;
    const int pieces = static_cast<int>((most + kPiece - 1) / kPiece) * runs;
    GANTRY_ROLLED
    for (int k = static_cast<int>(threadIdx.x) / 32; k < pieces; k += Threads / 32) {
      const std::int64_t at = k / runs * kPiece;
      const Run run = run_of(k % runs);
      cuda::copy_piece(run.to + at, run.from + at, static_cast<int>(clipped(run.bytes, at, kPiece)),
                       static_cast<int>(threadIdx.x) % 32);
    }
  }

  template <class T, class From>
  __device__ void fold(const Combination& how, const Targets& to, std::int64_t bytes,
                       const From& from) {
    if (tells()) return;
    cuda::fold<T, Threads>(how, to, bytes, from, static_cast<int>(threadIdx.x));
  }

  // See Note [Crews]; false if a stage did. The last warp of each crew tells of what the others
  // did: it takes microseconds until everybody sees a step, and meanwhile they do the next.
  template <int... Warps, class... Stages>
  __device__ bool pipeline(std::int64_t steps, const Stages&... stages) {
    static_assert((Warps + ...) * 32 == Threads && Threads <= kMaxWarps * 32);
    static_assert(sizeof...(Stages) <= kMaxCrews);
    __shared__ CrewProgress progress;
    if (threadIdx.x < kMaxWarps) progress.worked[threadIdx.x] = 0;
    if (threadIdx.x < kMaxCrews) {
      progress.ended[threadIdx.x] = 0;
      progress.gave_up[threadIdx.x] = false;
    }
    if (is_leader()) {
      progress.stopped = false;
      progress.told = false;
    }
    sync();
    run_crew<0, 0, Warps...>(progress, steps, stages...);
    sync();
    if (progress.told) note_told();
    return !progress.stopped;
  }

 private:
  __device__ static int threads() {
    return Threads > 0 ? Threads + Tellers : static_cast<int>(blockDim.x);
  }
  __device__ static bool tells() { return Tellers > 0 && static_cast<int>(threadIdx.x) >= Threads; }

  template <int Index, int First, int Warps, int... Others, class Stage, class... Stages>
  __device__ void run_crew(CrewProgress& progress, std::int64_t steps, const Stage& stage,
                           const Stages&... stages) {
    constexpr int kWorkers = Warps - 1;
    const int warp = static_cast<int>(threadIdx.x) / 32 - First;
    if (warp < kWorkers) {
      CudaCrew<kWorkers> crew(progress, warp);
      GANTRY_ROLLED
      for (std::int64_t step = 0; step < steps; ++step) {
        const bool goes_on = stage.work(crew, step);
        if (crew.has_told()) progress.told = true;
        if (!goes_on) {
          progress.gave_up[Index] = true;
          progress.stopped = true;
          return;
        }
        crew.sync();
        if (crew.is_leader()) set_count(&progress.worked[First + warp], step + 1);
      }
    } else if (warp == kWorkers) {
      CudaCrew<1> crew(progress, 0);
      const int lane = static_cast<int>(threadIdx.x) % 32;
      GANTRY_ROLLED
      for (std::int64_t step = 0; step < steps; ++step) {
        const std::uint32_t* worked = &progress.worked[First + (lane < kWorkers ? lane : 0)];
        while (crew.any(count_of(worked) <= step)) {
          if (crew.any(progress.gave_up[Index])) return;
        }
        crew.sync();  // each lane saw one warp's count; a vote alone orders no memory
        if (crew.is_leader()) set_count(&progress.ended[Index], step + 1);
        stage.tell(crew, step);
      }
    } else if constexpr (sizeof...(Others) > 0) {
      run_crew<Index + 1, First + Warps, Others...>(progress, steps, stages...);
    }
  }
};

}  // namespace gantry::protocol
