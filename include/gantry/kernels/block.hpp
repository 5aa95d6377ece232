#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/export.hpp>

namespace gantry {

class Block;

/// Number of blocks of a launch. `launch(stream, 16, …)` has 16 blocks along x.
/// @since 0.3
struct Grid {
  std::int64_t x = 1;  ///< 0 to 2^31 - 1
  std::int64_t y = 1;  ///< 0 to 65535
  std::int64_t z = 1;  ///< 0 to 65535

  /// Number of blocks in each dim; launch() checks them.
  Grid(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) : x(x), y(y), z(z) {}
};

/// Number of threads of a block, and the size of its shared memory.
/// @since 0.3
struct BlockSize {
  std::int64_t x = 1;            ///< 1 to 1024
  std::int64_t y = 1;            ///< 1 to 1024
  std::int64_t z = 1;            ///< 1 to 64; x * y * z is at most 1024
  std::size_t shared_bytes = 0;  ///< shared memory that Block::shared() can return

  /// Number of threads in each dim, and shared memory in bytes; launch() checks them.
  BlockSize(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1, std::size_t shared_bytes = 0)
      : x(x), y(y), z(z), shared_bytes(shared_bytes) {}

  /// The same threads with `bytes` of shared memory. One block may have as much as
  /// DeviceProperties::shared_memory_per_block_optin.
  [[nodiscard]] BlockSize with_shared(std::size_t bytes) const { return {x, y, z, bytes}; }
};

/// A position in a grid or in a block, or the size of one.
/// @since 0.3
struct Index3 {
  std::uint32_t x = 0;  ///< first dim, which varies fastest
  std::uint32_t y = 0;  ///< second dim
  std::uint32_t z = 0;  ///< third dim
};

namespace detail {

// A simulated block, which its threads share.
class SimBlock;
GANTRY_API void wait_at_barrier(SimBlock* block, std::uint32_t thread);
GANTRY_API bool any_at_barrier(SimBlock* block, std::uint32_t thread, bool flag);
GANTRY_API void* shared_memory(SimBlock* block, std::size_t offset, std::size_t bytes);

// The state of a Block on the simulator. On a GPU these are special registers.
struct SimThread {
  SimBlock* block = nullptr;
  Index3 grid{};
  Index3 size{};
  Index3 index{};
  Index3 thread{};
  std::uint32_t number = 0;
};

struct BlockMaker;

}  // namespace detail

/// One thread's view of its block in a launch().
///
/// The functor is called once for each thread, on GPUs and on simulated devices. On a simulated
/// device the threads of a block take turns at barriers, and blocks run one after the other.
/// @code
/// const auto reversed = [](Block& block) {  // for launch()
///   auto* shared = block.shared<int>(block.size().x);
///   shared[block.thread().x] = static_cast<int>(block.flat_index());
///   block.barrier();
/// };
/// @endcode
/// @since 0.3
class Block {
 public:
  /// Number of blocks in the launch.
  [[nodiscard]] GANTRY_HD Index3 grid() const {
#ifdef __CUDA_ARCH__
    return {gridDim.x, gridDim.y, gridDim.z};
#else
    return sim_.grid;
#endif
  }
  /// Position of this block in the grid.
  [[nodiscard]] GANTRY_HD Index3 index() const {
#ifdef __CUDA_ARCH__
    return {blockIdx.x, blockIdx.y, blockIdx.z};
#else
    return sim_.index;
#endif
  }
  /// Number of threads in a block.
  [[nodiscard]] GANTRY_HD Index3 size() const {
#ifdef __CUDA_ARCH__
    return {blockDim.x, blockDim.y, blockDim.z};
#else
    return sim_.size;
#endif
  }
  /// Position of this thread in its block.
  [[nodiscard]] GANTRY_HD Index3 thread() const {
#ifdef __CUDA_ARCH__
    return {threadIdx.x, threadIdx.y, threadIdx.z};
#else
    return sim_.thread;
#endif
  }

  /// Number of this thread in its block, counted along x first, then y, then z.
  [[nodiscard]] GANTRY_HD std::int64_t flat_thread() const {
    const Index3 at = thread();
    const Index3 sizes = size();
    return at.x + std::int64_t{sizes.x} * (at.y + std::int64_t{sizes.y} * at.z);
  }
  /// Number of this thread in the launch. Threads of block (0, 0, 0) come first, then those of
  /// block (1, 0, 0), and so on.
  [[nodiscard]] GANTRY_HD std::int64_t flat_index() const {
    const Index3 at = index();
    const Index3 blocks = grid();
    const Index3 sizes = size();
    const std::int64_t block =
        at.x + std::int64_t{blocks.x} * (at.y + std::int64_t{blocks.y} * at.z);
    return block * sizes.x * sizes.y * sizes.z + flat_thread();
  }

  /// Waits until every thread of the block has made the call. Writes before it are visible after
  /// it. Every thread of the block must call it. If a thread returns without it, a simulated device
  /// sets InvalidArgument as the stream's error.
  GANTRY_HD void barrier() {
#ifdef __CUDA_ARCH__
    __syncthreads();
#else
    detail::wait_at_barrier(sim_.block, sim_.number);
#endif
  }

  /// As barrier(). True, in every thread, if a thread of the block passes true.
  [[nodiscard]] GANTRY_HD bool any(bool flag) {
#ifdef __CUDA_ARCH__
    return __syncthreads_or(static_cast<int>(flag)) != 0;
#else
    return detail::any_at_barrier(sim_.block, sim_.number, flag);
#endif
  }

  /// The next `count` elements of the block's shared memory, at the same address in every thread.
  /// All threads make the same calls in the same order. The contents are undefined. The address is
  /// a multiple of alignof(T), at most 16; padding counts. Exceeding BlockSize::shared_bytes is an
  /// error of the stream: CudaError on a GPU, InvalidArgument on a simulated device.
  template <class T>
  [[nodiscard]] GANTRY_HD T* shared(std::size_t count) {
    static_assert(alignof(T) <= 16, "shared memory is aligned to 16 bytes");
    shared_used_ = (shared_used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    const std::size_t offset = shared_used_;
    const std::size_t bytes = count * sizeof(T);
    shared_used_ += bytes;
#ifdef __CUDA_ARCH__
    extern __shared__ __align__(16) unsigned char gantry_shared_memory[];
    unsigned granted = 0;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(granted));
    if (count > granted || shared_used_ > granted) __trap();
    return reinterpret_cast<T*>(gantry_shared_memory + offset);
#else
    return static_cast<T*>(
        detail::shared_memory(sim_.block, offset, count > SIZE_MAX / sizeof(T) ? SIZE_MAX : bytes));
#endif
  }

 private:
  friend struct detail::BlockMaker;
  GANTRY_HD Block() {}

  detail::SimThread sim_{};  // unused on a GPU
  std::size_t shared_used_ = 0;
};

namespace detail {

struct BlockMaker {
  GANTRY_HD static Block on_gpu() { return {}; }
  static Block simulated(const SimThread& thread) {
    Block block;
    block.sim_ = thread;
    return block;
  }
};

}  // namespace detail

}  // namespace gantry
