// A thread block of the GPU as algorithms of collectives see it; see Note [Blocks].
#pragma once

#include <cstdint>

#include "collectives/protocol/signal.hpp"
#include "kernels/impl/fold.inl"

namespace gantry::protocol {

inline constexpr int kThreads = 512;

class CudaBlock {
 public:
  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ bool is_leader() const { return threadIdx.x == 0; }

  template <class F>
  __device__ void for_each(std::int64_t n, F f) {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) f(i);
  }
  template <class F>
  __device__ void for_each_rank(int n, F f) {
    if (static_cast<int>(threadIdx.x) < n) f(static_cast<int>(threadIdx.x));
  }
  __device__ void sync() { __syncthreads(); }
  __device__ bool any(bool flag) { return __syncthreads_or(flag ? 1 : 0) != 0; }

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
  // True for the last block of the operation to call it.
  __device__ bool is_last(std::uint32_t* blocks_done) {
    if (gridDim.x == 1) return true;
    __threadfence();
    if (atomicAdd(blocks_done, 1u) + 1 != gridDim.x) return false;
    *static_cast<volatile std::uint32_t*>(blocks_done) = 0;
    return true;
  }

  __device__ void publish(std::uint64_t* host_word, std::uint64_t value) {
    *static_cast<volatile std::uint64_t*>(host_word) = value;
  }
  __device__ bool is_aborted(const DeviceWords* words) {
    return *static_cast<const volatile std::uint32_t*>(&words->abort) != 0;
  }
  __device__ void report(DeviceWords* words, Outcome outcome, int peer, std::uint64_t call) {
    const auto fault =
        outcome == Outcome::mismatch ? OperationFault::mismatch : OperationFault::aborted;
    *static_cast<volatile std::int32_t*>(&words->fault_peer) = peer;
    *static_cast<volatile std::uint64_t*>(&words->fault_call) = call;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&words->fault) = static_cast<std::uint32_t>(fault);
  }
  __device__ void pause(std::uint32_t) {}

  // Warps are dealt out to the runs, so that all of them are in flight at once.
  template <class RunOf>
  __device__ void copy(int runs, const RunOf& run_of) {
    constexpr int kWarps = kThreads / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int k = warp % runs; k < runs; k += kWarps) {
      const int warps = runs >= kWarps ? 1 : (kWarps - k + runs - 1) / runs;
      const int first = runs >= kWarps ? lane : warp / runs * 32 + lane;
      copy_run(run_of(k), first, warps * 32);
    }
  }

  // to[0, bytes) = the fold of what source(0), source(1), … source(ranks - 1) point to, arrays of
  // T at addresses aligned to 16 bytes.
  template <class T, class Source>
  __device__ void fold(const Combination& how, std::byte* to, std::int64_t bytes, int ranks,
                       const Source& source) {
    // Narrow elements have wide accumulators, and fewer words fit into registers.
    constexpr int kWords = sizeof(T) / 2 > 0 ? sizeof(T) / 2 : 1;
    if (ranks <= 2) {
      fold_words < T, 2, kWords<4 ? kWords * 2 : 4>(how, to, bytes, ranks, source);
    } else if (ranks <= 4) {
      fold_words < T, 4, kWords<2 ? kWords : 2>(how, to, bytes, ranks, source);
    } else {
      fold_words<T, 8, 1>(how, to, bytes, ranks, source);
    }
  }

  // Folds one 8-byte word of elements of T per rank.
  template <class T>
  class WordFold {
   public:
    using Element = typename kernels::Folder<T, kernels::FoldOp::sum>::Stored;
    using Acc = typename kernels::Folder<T, kernels::FoldOp::sum>::Acc;
    static constexpr int kElements = 8 / sizeof(Element);

    __device__ explicit WordFold(const Combination& how) : how_(how) {}
    __device__ void add(std::uint64_t word) {
      Element elements[kElements];
      memcpy(static_cast<void*>(elements), &word, sizeof word);
      kernels::with_fold<T>(how_.op, [&](auto folder) {
        using F = typename decltype(folder)::type;
        if constexpr (F::kIsDefined) {
#pragma unroll
          for (int i = 0; i < kElements; ++i) {
            const Acc value = scaled(F::load(elements[i]), how_.scale);
            acc_[i] = first_ ? value : F::combine(acc_[i], value);
          }
        }
      });
      first_ = false;
    }
    __device__ std::uint64_t result() const {
      Element elements[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        elements[i] = kernels::Folder<T, kernels::FoldOp::sum>::finish(acc_[i], how_.divisor);
      }
      std::uint64_t word;
      memcpy(&word, elements, sizeof word);
      return word;
    }

   private:
    const Combination& how_;
    Acc acc_[kElements];
    bool first_ = true;
  };

 private:
  // The share of thread `first` of `threads`.
  __device__ void copy_run(const Run& run, int first, int threads) {
    const auto bits =
        reinterpret_cast<std::uintptr_t>(run.to) | reinterpret_cast<std::uintptr_t>(run.from);
    if (bits % 16 == 0) {
      copy_words<uint4>(run, first, threads);
    } else if (bits % 4 == 0) {
      copy_words<std::uint32_t>(run, first, threads);
    } else {
      copy_words<std::uint8_t>(run, first, threads);
    }
  }

  template <class Word>
  __device__ void copy_words(const Run& run, int first, int threads) {
    constexpr int kInFlight = 4;
    const std::int64_t words = run.bytes / static_cast<std::int64_t>(sizeof(Word));
    auto* out = reinterpret_cast<Word*>(run.to);
    const auto* in = reinterpret_cast<const Word*>(run.from);
    for (std::int64_t i = first; i < words; i += threads * kInFlight) {
      Word loaded[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (i + k * threads < words) loaded[k] = in[i + k * threads];
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (i + k * threads < words) out[i + k * threads] = loaded[k];
      }
    }
    const std::int64_t tail = words * static_cast<std::int64_t>(sizeof(Word)) + first;
    if (tail < run.bytes) run.to[tail] = run.from[tail];
  }

  // Rounded by itself: the compiler must not fuse it into the sum.
  template <class Acc>
  __device__ static Acc scaled(Acc value, double scale) {
    if constexpr (std::is_same_v<Acc, float>) {
      return scale == 1 ? value : __fmul_rn(value, static_cast<float>(scale));
    } else if constexpr (std::is_same_v<Acc, double>) {
      return scale == 1 ? value : __dmul_rn(value, scale);
    } else {
      return value;
    }
  }

  // A thread has `Words` words of `Ranks` ranks in flight: they may be a microsecond away.
  template <class T, int Ranks, int Words, class Source>
  __device__ void fold_words(const Combination& how, std::byte* to, std::int64_t bytes, int ranks,
                             const Source& source) {
    using Element = typename kernels::Folder<T, kernels::FoldOp::sum>::Stored;
    using Acc = typename kernels::Folder<T, kernels::FoldOp::sum>::Acc;
    constexpr int V = 16 / sizeof(Element);
    const std::int64_t words = (bytes + 15) / 16;
    const bool aligned = reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
    for (std::int64_t at = threadIdx.x; at < words; at += kThreads * Words) {
      Acc acc[Words][V];
      for (int first = 0; first < ranks; first += Ranks) {
        uint4 loaded[Words][Ranks];
#pragma unroll
        for (int r = 0; r < Ranks; ++r) {
          if (first + r >= ranks) continue;
          const auto* in = reinterpret_cast<const uint4*>(source(first + r));
#pragma unroll
          for (int w = 0; w < Words; ++w) {
            if (at + w * kThreads < words) loaded[w][r] = in[at + w * kThreads];
          }
        }
        kernels::with_fold<T>(how.op, [&](auto folder) {
          using F = typename decltype(folder)::type;
          if constexpr (F::kIsDefined) {
#pragma unroll
            for (int r = 0; r < Ranks; ++r) {
              if (first + r >= ranks) continue;
#pragma unroll
              for (int w = 0; w < Words; ++w) {
                Element elements[V];
                memcpy(static_cast<void*>(elements), &loaded[w][r], 16);
#pragma unroll
                for (int i = 0; i < V; ++i) {
                  const Acc value = scaled(F::load(elements[i]), how.scale);
                  acc[w][i] = first + r == 0 ? value : F::combine(acc[w][i], value);
                }
              }
            }
          }
        });
      }
#pragma unroll
      for (int w = 0; w < Words; ++w) {
        const std::int64_t word = at + w * kThreads;
        if (word >= words) continue;
        Element elements[V];
#pragma unroll
        for (int i = 0; i < V; ++i) {
          elements[i] = kernels::Folder<T, kernels::FoldOp::sum>::finish(acc[w][i], how.divisor);
        }
        if (aligned && word * 16 + 16 <= bytes) {
          memcpy(__builtin_assume_aligned(to + word * 16, 16), elements, 16);
          continue;
        }
        auto* out = reinterpret_cast<Element*>(to) + word * V;
        const std::int64_t count = (bytes - word * 16) / static_cast<std::int64_t>(sizeof(Element));
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if (i < count) out[i] = elements[i];
        }
      }
    }
  }
};

}  // namespace gantry::protocol
