// A thread block of the GPU, as a Block of the collective algorithms; see Note [Blocks].
#pragma once

#include <cstdint>

#include "collectives/cuda/reduce.cuh"
#include "collectives/cuda/warp_role.cuh"
#include "core/code_size.hpp"

namespace gantry::protocol {

inline constexpr int kThreads = 512;
// Threads of a signalling warp.
inline constexpr int kSignallingThreads = 32;

// `Threads` may be 0: as many as were launched. `SignallingThreads` more, a warp or none, do the
// work for each rank: they signal and wait for signals. They neither copy nor reduce, so that
// copies and reductions do not wait for signals.
template <int Threads = kThreads, int SignallingThreads = 0>
class CudaBlock : public CudaWords {
 public:
  // Polls that take tenths of a second: see Note [Open arrays].
  static constexpr std::uint32_t kSettlingPolls = 1 << 18;

  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ bool is_leader() const { return threadIdx.x == 0; }
  __device__ bool is_stopped() const { return false; }

  template <class F>
  __device__ void for_each(std::int64_t n, F f) {
    GANTRY_ROLLED
    for (std::int64_t i = threadIdx.x; i < n; i += threads()) f(i);
  }
  // The LL128 lines of a warp are adjacent. All its threads run f, also past the last line.
  template <class F>
  __device__ void for_each_ll128_line(std::int32_t n, F f) {
    constexpr int kWarpLines = 32 / kLl128Threads;
    const auto lane = static_cast<int>(threadIdx.x) % 32;
    GANTRY_ROLLED
    for (std::int32_t i = static_cast<int>(threadIdx.x) / 32 * kWarpLines; i < n;
         i += threads() / kLl128Threads) {
      f(i + lane / kLl128Threads);
    }
  }
  // The last warp, which has the least other work.
  template <class F>
  __device__ void for_each_rank(int n, F f) {
    const int p = static_cast<int>(threadIdx.x) - (threads() - 32);
    if (p >= 0 && p < n) f(p);
  }
  template <class F>
  __device__ bool each_finds(int n, F f) {
    if (is_signalling()) return true;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool all = __all_sync(0xffffffff, lane >= n || f(lane)) != 0;
    __syncwarp();  // the vote alone orders no memory
    return all;
  }
  __device__ void sync() { __syncthreads(); }
  __device__ bool any(bool flag) { return __syncthreads_or(static_cast<int>(flag)) != 0; }

  // To be called once in a kernel.
  __device__ std::uint64_t from_leader(std::uint64_t value) {
    __shared__ std::uint64_t shared;
    if (is_leader()) shared = value;
    sync();
    return shared;
  }

  template <class RunOf>
  __device__ void copy(int runs, std::int64_t most, const RunOf& run_of) {
    if (is_signalling()) return;
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
  __device__ void reduce(const ReduceBy& how, const Targets& to, std::int64_t bytes,
                         const From& from) {
    if (is_signalling()) return;
    cuda::reduce<T, Threads>(how, to, bytes, from, static_cast<int>(threadIdx.x));
  }

  // See Note [Warp roles]; false if a stage returned false. The last warp of each role signals for
  // the others. It takes microseconds until all ranks see a chunk; meanwhile the others do the
  // next.
  template <int... Warps, class... Stages>
  __device__ bool pipeline(std::int64_t chunks, const Stages&... stages) {
    static_assert((Warps + ...) * 32 == Threads && Threads <= kMaxWarps * 32);
    static_assert(sizeof...(Stages) <= kMaxRoles);
    __shared__ RoleProgress progress;
    if (threadIdx.x < kMaxWarps) progress.worked[threadIdx.x] = 0;
    if (threadIdx.x < kMaxRoles) {
      progress.ended[threadIdx.x] = 0;
      progress.gave_up[threadIdx.x] = false;
    }
    if (is_leader()) {
      progress.stopped = false;
      progress.reported = false;
    }
    sync();
    run_role<0, 0, Warps...>(progress, chunks, stages...);
    sync();
    if (progress.reported) note_reported();
    return !progress.stopped;
  }

 private:
  __device__ static int threads() {
    return Threads > 0 ? Threads + SignallingThreads : static_cast<int>(blockDim.x);
  }
  __device__ static bool is_signalling() {
    return SignallingThreads > 0 && static_cast<int>(threadIdx.x) >= Threads;
  }

  template <int Index, int First, int Warps, int... Others, class Stage, class... Stages>
  __device__ void run_role(RoleProgress& progress, std::int64_t chunks, const Stage& stage,
                           const Stages&... stages) {
    constexpr int kWorkers = Warps - 1;
    const int warp = static_cast<int>(threadIdx.x) / 32 - First;
    if (warp < kWorkers) {
      CudaWarpRole<kWorkers> role(progress, warp);
      GANTRY_ROLLED
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const bool goes_on = stage.work(role, chunk);
        if (role.has_reported()) progress.reported = true;
        if (!goes_on) {
          progress.gave_up[Index] = true;
          progress.stopped = true;
          return;
        }
        role.sync();
        if (role.is_leader()) set_count(&progress.worked[First + warp], chunk + 1);
      }
    } else if (warp == kWorkers) {
      CudaWarpRole<1> role(progress, 0);
      const int lane = static_cast<int>(threadIdx.x) % 32;
      GANTRY_ROLLED
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::uint32_t* worked = &progress.worked[First + (lane < kWorkers ? lane : 0)];
        while (role.any(count_of(worked) <= chunk)) {
          if (role.any(progress.gave_up[Index])) return;
        }
        role.sync();  // each lane saw one warp's count; a vote alone orders no memory
        if (role.is_leader()) set_count(&progress.ended[Index], chunk + 1);
        stage.signal(role, chunk);
      }
    } else if constexpr (sizeof...(Others) > 0) {
      run_role<Index + 1, First + Warps, Others...>(progress, chunks, stages...);
    }
  }
};

}  // namespace gantry::protocol
