// The warps of a role, see Note [Warp roles], and copies by the lanes of a warp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/cuda/words.cuh"
#include "core/code_size.hpp"

namespace gantry::protocol::cuda {

// 16-byte words that a thread has in flight: they may be a microsecond away.
inline constexpr int kCopyInFlight = 8;
inline constexpr int kPieceBytes = 32 * kCopyInFlight * 16;

template <class Word>
__device__ void copy_words(std::byte* to, const std::byte* from, int bytes, int lane) {
  const int words = bytes / static_cast<int>(sizeof(Word));
  auto* out = reinterpret_cast<Word*>(to);
  const auto* in = reinterpret_cast<const Word*>(from);
#pragma unroll 1
  for (int i = lane; i < words; i += 32 * kCopyInFlight) {
    Word loaded[kCopyInFlight];
#pragma unroll
    for (int k = 0; k < kCopyInFlight; ++k) {
      if (i + k * 32 < words) loaded[k] = in[i + k * 32];
    }
#pragma unroll
    for (int k = 0; k < kCopyInFlight; ++k) {
      if (i + k * 32 < words) out[i + k * 32] = loaded[k];
    }
  }
  const int tail = words * static_cast<int>(sizeof(Word)) + lane;
  if (tail < bytes) to[tail] = from[tail];
}

// Copies at most kPieceBytes by a warp. Not inlined, so that all registers are its own.
inline __device__ __noinline__ void copy_piece(std::byte* to, const std::byte* from, int bytes,
                                               int lane) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bits % 16 == 0) {
    copy_words<uint4>(to, from, bytes, lane);
  } else if (bits % 4 == 0) {
    copy_words<std::uint32_t>(to, from, bytes, lane);
  } else if (bits % 2 == 0) {
    copy_words<std::uint16_t>(to, from, bytes, lane);
  } else {
    copy_words<std::uint8_t>(to, from, bytes, lane);
  }
}

}  // namespace gantry::protocol::cuda

namespace gantry::protocol {

inline constexpr int kMaxWarps = 16;
inline constexpr int kMaxRoles = 3;

// The progress of a block's warps, in shared memory.
struct RoleProgress {
  std::uint32_t worked[kMaxWarps];  // chunks that each working warp did
  std::uint32_t ended[kMaxRoles];   // chunks that all warps of a role did
  volatile bool gave_up[kMaxRoles];
  volatile bool stopped;   // some role gave up
  volatile bool reported;  // some thread reported to the host
};

// Sets a count with release semantics; count_of() acquires.
__device__ inline void set_count(std::uint32_t* word, std::int64_t chunks) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"l"(__cvta_generic_to_shared(word)),
               "r"(static_cast<std::uint32_t>(chunks))
               : "memory");
}
__device__ inline std::int64_t count_of(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_shared(word))
               : "memory");
  return value;
}

// Working warp `warp` of a role's `Warps`. Warps do not wait for each other: while one waits for
// peers or for memory, others continue.
template <int Warps>
class CudaWarpRole : public CudaWords {
 public:
  __device__ CudaWarpRole(RoleProgress& progress, int warp) : progress_(progress), warp_(warp) {}

  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ bool is_leader() const { return lane() == 0; }

  template <class F>
  __device__ void for_each_rank(int n, F f) {
    if (lane() < n) f(lane());
    __syncwarp();
  }
  __device__ void sync() { __syncwarp(); }
  __device__ bool any(bool flag) { return __any_sync(0xffffffff, flag) != 0; }

  // Waits until role `role` of the block has ended `chunks` chunks; false if a role has stopped.
  __device__ bool wait_role(int role, std::int64_t chunks) {
    bool stopped = false;
    if (is_leader()) {
      while (count_of(&progress_.ended[role]) < chunks && !stopped) stopped = is_stopped();
    }
    const bool goes_on = !any(stopped);
    sync();  // the vote alone orders no memory
    return goes_on;
  }
  __device__ bool is_stopped() const { return progress_.stopped; }

  // Copies this warp's pieces. Warps copy pieces of the runs in turn, so that all runs are in
  // flight at once. The turn continues in the next call, so that warps copy equal numbers of
  // pieces.
  template <class RunOf>
  __device__ void copy(int runs, std::int64_t most, const RunOf& run_of) {
    constexpr std::int64_t kPiece = cuda::kPieceBytes;
    const int pieces = static_cast<int>((most + kPiece - 1) / kPiece) * runs;
    GANTRY_ROLLED
    for (int k = (warp_ + turn_) % Warps; k < pieces; k += Warps) {
      const std::int64_t at = k / runs * kPiece;
      const Run run = run_of(k % runs);
      cuda::copy_piece(run.to + at, run.from + at, static_cast<int>(clipped(run.bytes, at, kPiece)),
                       lane());
    }
    pass_turn(pieces);
  }

  // Reduces this warp's pieces, in the same order.
  template <class T, class From>
  __device__ void reduce(const ReduceBy& how, const Targets& to, std::int64_t bytes,
                         const From& from) {
    cuda::reduce<T, Warps * 32>(how, to, bytes, from, (warp_ + turn_) % Warps * 32 + lane());
    pass_turn(static_cast<int>((bytes + 511) / 512));
  }

 private:
  __device__ void pass_turn(int pieces) { turn_ = (turn_ + Warps - pieces % Warps) % Warps; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  RoleProgress& progress_;
  int warp_;
  int turn_ = 0;
};

}  // namespace gantry::protocol
