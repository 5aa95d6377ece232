// A thread block of the GPU as algorithms of collectives see it; see Note [Blocks].
#pragma once

#include <cstdint>

#include "collectives/cuda/copy.cuh"
#include "collectives/cuda/fold.cuh"
#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

inline constexpr int kThreads = 512;
inline constexpr int kMaxCrews = 3;

// How far the crews of a block are, in shared memory.
struct CrewProgress {
  std::uint32_t worked[kMaxCrews];          // steps, as the workers of a crew count them
  volatile std::uint32_t ended[kMaxCrews];  // steps, as its teller does
  volatile bool gave_up[kMaxCrews];
  volatile bool stopped;  // some crew gave up
  volatile bool told;     // some thread told the host
};

// Threads [First, First + Threads) of a block. Each crew has a barrier of its own.
template <int First, int Threads, int Barrier>
class CudaCrew {
 public:
  __device__ explicit CudaCrew(CrewProgress* progress = nullptr) : progress_(progress) {}

  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ bool is_leader() const { return thread() == 0; }

  template <class F>
  __device__ void for_each(std::int64_t n, F f) {
    for (std::int64_t i = thread(); i < n; i += Threads) f(i);
  }
  // The last warp, which has the least else to do.
  template <class F>
  __device__ void for_each_rank(int n, F f) {
    const int p = thread() - (Threads - 32);
    if (p >= 0 && p < n) f(p);
  }
  __device__ void sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(Barrier), "n"(Threads) : "memory");
  }
  __device__ bool any(bool flag) {
    int result;
    asm volatile(
        "{ .reg .pred mine, all;\n"
        "setp.ne.s32 mine, %1, 0;\n"
        "bar.red.or.pred all, %2, %3, mine;\n"
        "selp.s32 %0, 1, 0, all; }"
        : "=r"(result)
        : "r"(static_cast<int>(flag)), "n"(Barrier), "n"(Threads)
        : "memory");
    return result != 0;
  }

  __device__ std::uint64_t acquire(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ void release(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }

  __device__ void post(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }

  // A packet travels as one 16-byte access.
  __device__ Packet read(const Packet* packet) {
    Packet value;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.low), "=r"(value.low_flag), "=r"(value.high), "=r"(value.high_flag)
                 : "l"(packet)
                 : "memory");
    return value;
  }
  __device__ void write(Packet* packet, const Packet& value) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(packet), "r"(value.low),
                 "r"(value.low_flag), "r"(value.high), "r"(value.high_flag)
                 : "memory");
  }

  // Words that only this rank's kernels use, one after the other.
  template <class Word>
  __device__ Word own(const Word* word) {
    return *static_cast<const volatile Word*>(word);
  }
  template <class Word>
  __device__ void set_own(Word* word, Word value) {
    *static_cast<volatile Word*>(word) = value;
  }
  __device__ void fence() { __threadfence(); }

  __device__ void note_told() { told_ = true; }
  __device__ bool has_told() const { return told_; }

  __device__ void publish(std::uint64_t* host_word, std::uint64_t value) {
    *static_cast<volatile std::uint64_t*>(host_word) = value;
  }
  __device__ bool is_aborted(const DeviceWords* words) {
    return *static_cast<const volatile std::uint32_t*>(&words->abort) != 0;
  }
  __device__ void report(DeviceWords* words, Outcome outcome, int peer, std::uint64_t call,
                         std::uint32_t sequence) {
    const auto fault =
        outcome == Outcome::mismatch ? OperationFault::mismatch : OperationFault::aborted;
    *static_cast<volatile std::int32_t*>(&words->fault_peer) = peer;
    *static_cast<volatile std::uint64_t*>(&words->fault_call) = call;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&words->fault) = fault_word(fault, sequence);
  }
  __device__ void pause(std::uint32_t) {}

  // Waits until crew `crew` of the block ended `steps` steps; false if one stopped.
  __device__ bool await_crew(int crew, std::int64_t steps) {
    bool stopped = false;
    if (is_leader()) {
      while (progress_->ended[crew] < static_cast<std::uint32_t>(steps) && !stopped) {
        stopped = is_stopped();
      }
      __threadfence_block();
    }
    return !any(stopped);
  }
  __device__ bool is_stopped() const { return progress_ != nullptr && progress_->stopped; }

  // Warps take pieces of the runs in turn, so that all runs are in flight at once.
  template <class RunOf>
  __device__ void copy(int runs, std::int64_t most, const RunOf& run_of) {
    constexpr std::int64_t kPiece = cuda::kPieceBytes;
    const int lane = thread() % 32;
    const int pieces = static_cast<int>((most + kPiece - 1) / kPiece) * runs;
    for (int k = thread() / 32; k < pieces; k += Threads / 32) {
      const std::int64_t at = k / runs * kPiece;
      const Run run = run_of(k % runs);
      cuda::copy_piece(run.to + at, run.from + at, static_cast<int>(clipped(run.bytes, at, kPiece)),
                       lane);
    }
  }

  template <class T>
  __device__ void fold(const Combination& how, const Targets& to, std::int64_t bytes,
                       const Sources& from) {
    cuda::fold<T, Threads>(how, to, bytes, from, thread());
  }

  template <class Acc>
  __device__ static Acc scaled(Acc value, double scale) {
    return cuda::scaled(value, scale);
  }

 protected:
  __device__ int thread() const { return static_cast<int>(threadIdx.x) - First; }

 private:
  CrewProgress* progress_;
  bool told_ = false;
};

// All threads of a block.
class CudaBlock : public CudaCrew<0, kThreads, 0> {
 public:
  // See Note [Crews]; false if a stage did. The last warp of each crew tells of what the others
  // did: it takes microseconds until everybody sees a step, and meanwhile they do the next.
  template <int... Warps, class... Stages>
  __device__ bool pipeline(std::int64_t steps, const Stages&... stages) {
    static_assert((Warps + ...) * 32 == kThreads && sizeof...(Stages) <= kMaxCrews);
    __shared__ CrewProgress progress;
    if (thread() < kMaxCrews) {
      progress.worked[thread()] = 0;
      progress.ended[thread()] = 0;
      progress.gave_up[thread()] = false;
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
  template <int Index, int First, int Warps, int... Others, class Stage, class... Stages>
  __device__ void run_crew(CrewProgress& progress, std::int64_t steps, const Stage& stage,
                           const Stages&... stages) {
    constexpr int kWorkers = Warps - 1;
    constexpr int kTeller = First + kWorkers * 32;
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kTeller) {
      CudaCrew<First, kWorkers * 32, Index + 1> crew(&progress);
      for (std::int64_t step = 0; step < steps; ++step) {
        const bool goes_on = stage.work(crew, step);
        if (crew.has_told()) progress.told = true;
        if (!goes_on) {
          progress.gave_up[Index] = true;
          progress.stopped = true;
          return;
        }
        crew.sync();
        if (crew.is_leader()) set_count(&progress.worked[Index], step + 1);
      }
    } else if (thread < kTeller + 32) {
      CudaCrew<kTeller, 32, kMaxCrews + Index + 1> crew(&progress);
      for (std::int64_t step = 0; step < steps; ++step) {
        while (count_of(&progress.worked[Index]) <= step) {
          if (progress.gave_up[Index]) return;
        }
        __syncwarp();
        if (crew.is_leader()) progress.ended[Index] = static_cast<std::uint32_t>(step + 1);
        stage.tell(crew, step);
      }
    } else if constexpr (sizeof...(Others) > 0) {
      run_crew<Index + 1, kTeller + 32, Others...>(progress, steps, stages...);
    }
  }

  // What a crew did before its leader counts is there for those who see the count.
  __device__ static void set_count(std::uint32_t* word, std::int64_t steps) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"l"(__cvta_generic_to_shared(word)),
                 "r"(static_cast<std::uint32_t>(steps))
                 : "memory");
  }
  __device__ static std::int64_t count_of(const std::uint32_t* word) {
    std::uint32_t value;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_shared(word))
                 : "memory");
    return value;
  }
};

}  // namespace gantry::protocol
