// Random numbers that take many instructions: two Philox blocks of a thread at a time.
#pragma once

#include <cstdint>

#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// Philox blocks of a tile: two of each thread.
constexpr std::uint32_t kPairedTile = 2 * kThreads;

template <class Out, class Op>
__device__ StoredPack<Out, Op::kSize> drawn_block(const Op& op, std::uint64_t b) {
  const auto block = op.block(b);
  StoredPack<Out, Op::kSize> result;
#pragma unroll
  for (int i = 0; i < Op::kSize; ++i) result.values[i] = drawn<Out>(block.values[i]);
  return result;
}

// A thread writes two blocks of each of its `tiles`, and some of the blocks after them. The two
// share their constants and most of the loop, and overlap. 32-bit indices spare a part of Philox.
template <class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    paired_blocks_kernel(std::int64_t n, std::uint32_t tiles, Op op, Out* out) {
  constexpr int V = Op::kSize;
  wait_for_previous();
  detail::resolve(op);
  for (std::uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::uint32_t first = tile * kPairedTile + threadIdx.x;
    auto* packs = reinterpret_cast<StoredPack<Out, V>*>(out) + first;
    const StoredPack<Out, V> front = drawn_block<Out>(op, first);
    const StoredPack<Out, V> back = drawn_block<Out>(op, first + kThreads);
    packs[0] = front;
    packs[kThreads] = back;
  }
  std::int64_t b = static_cast<std::int64_t>(tiles) * kPairedTile + first_index();
#pragma unroll 1
  for (; b * V < n; b += index_step()) {
    const StoredPack<Out, V> last = drawn_block<Out>(op, static_cast<std::uint64_t>(b));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (b * V + i < n) out[b * V + i] = last.values[i];
    }
  }
}

// The loop of random numbers in pairs of blocks, where the numbers lie as a vector access needs
// them; elsewhere Loop.
class PairedLoop {
 public:
  explicit PairedLoop(void* stream) : stream_(stream) {}

  template <class Out, class Op>
  void run_blocks(const char* name, const Op& op, const TensorRef& out) const {
    auto* data = static_cast<Out*>(out.data);
    std::int64_t n = out.numel();
    const bool is_aligned =
        reinterpret_cast<std::uintptr_t>(data) % alignof(StoredPack<Out, Op::kSize>) == 0;
    if (!out.is_contiguous() || !is_aligned || n / Op::kSize >= kMost) {
      Loop(stream_).run_blocks<Out>(name, op, out);
      return;
    }
    if constexpr (detail::ReplayableOp<Op>) {
      if (op.stream.is_replayed()) {
        run_blocks<Out>(name, detail::Replayed<Op>(op), out);
        return;
      }
    }
    auto tiles = static_cast<std::uint32_t>(n / Op::kSize / kPairedTile);
    Op functor = op;
    void* arguments[] = {&n, &tiles, &functor, &data};
    constexpr std::int64_t kPerThread = 4 * Op::kSize;
    launch_untyped(name, stream_, blocks_for((n + kPerThread - 1) / kPerThread), kThreads,
                   reinterpret_cast<const void*>(paired_blocks_kernel<Out, Op>), arguments);
  }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 32;  // blocks with 32-bit indices

  void* stream_;
};

}  // namespace

}  // namespace gantry::kernels::cuda
