// Physical memory of one device, in chunks without addresses, and the functions of other layers
// that follow them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/stats.hpp>

#include "core/callbacks.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {

/// The code of a CudaError for want of device memory.
inline constexpr int kCudaOutOfMemory = 2;

/// One piece of physical memory.
struct Chunk {
  NativeChunk native = NativeChunk::none;
  std::size_t bytes = 0;
};

/// All chunks that this process holds of one device, mapped and unmapped ones, and their
/// statistics.
///
/// Thread safety: every member may be called from any thread; no lock is held over driver calls.
class ChunkStore {
 public:
  explicit ChunkStore(int device) : device_(device) {}

  [[nodiscard]] int device() const { return device_; }

  /// Takes chunks of `bytes` together, a multiple of kFineChunkBytes: unmapped chunks first, then
  /// new ones of the driver while held() stays within `limit`. New chunks are coarse where they
  /// fit, if `coarse` is set or the process has very many chunks. Empty if limit or device do not
  /// allow it; held() is not larger then than before.
  /// Throws: CudaError, std::bad_alloc; no chunk is lost.
  [[nodiscard]] std::vector<Chunk> acquire(std::size_t bytes, std::size_t limit, bool coarse);
  /// Adds chunks that were taken and are not mapped.
  void recycle(std::vector<Chunk> chunks) noexcept;
  /// Releases unmapped chunks to the driver until `bytes` are released or none is left. Returns the
  /// bytes released. A chunk that the driver does not take stays here.
  std::size_t release_unmapped(std::size_t bytes = kEverything) noexcept;

  /// Bytes of all chunks, as statistics.
  [[nodiscard]] Stat reserved() const;
  void reset_peak() noexcept { peak_.store(held(), std::memory_order_relaxed); }
  /// Bytes of all chunks.
  [[nodiscard]] std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  /// Bytes of unmapped chunks.
  [[nodiscard]] std::size_t unmapped() const;
  /// Number of chunks that were ever created and released.
  [[nodiscard]] std::int64_t created() const { return created_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t released() const { return released_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool is_available(std::size_t bytes, std::size_t limit) const;
  [[nodiscard]] bool take_unmapped(std::size_t& missing, std::vector<Chunk>& taken);
  void add_unmapped(const Chunk& chunk) noexcept;
  [[nodiscard]] bool create(std::size_t bytes, std::size_t limit, std::vector<Chunk>& made);

  const int device_;
  mutable std::mutex mutex_;
  std::vector<Chunk> fine_;
  std::vector<Chunk> coarse_;
  std::atomic<std::size_t> held_{0};
  std::atomic<std::size_t> peak_{0};  ///< of held_, after requests that succeeded
  std::atomic<std::size_t> released_bytes_{0};
  std::atomic<std::int64_t> created_{0};
  std::atomic<std::int64_t> released_{0};
};

/// Chunks that were mapped side by side.
struct MappedChunks {
  std::byte* range = nullptr;  ///< the first address of the whole range
  std::size_t range_bytes = 0;
  std::byte* address = nullptr;  ///< of the first chunk
  std::span<const Chunk> chunks{};

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Chunk& chunk : chunks) sum += chunk.bytes;
    return sum;
  }
};

/// Called after chunks were mapped, before a block uses them; may wait for other processes. False:
/// they must not be used there, and are unmapped again. The caller holds no lock of the heap.
using MapCallback = bool (*)(const MappedChunks& mapped) noexcept;
/// Called before chunks leave `bytes` at `address`: no work uses them any more. The caller holds
/// the lock of the address range.
using UnmapCallback = void (*)(std::byte* address, std::size_t bytes) noexcept;
/// Called after chunks were released: waits for a while for processes that still have them mapped,
/// so that the driver has their memory. The caller holds no lock of the heap.
using ReleaseCallback = void (*)() noexcept;

/// The callbacks of this process.
struct MappingCallbacks {
  /// Never destroyed: memory is unmapped while the process exits.
  [[nodiscard]] static MappingCallbacks& instance() noexcept;

  Callbacks<MapCallback> mapped;
  Callbacks<UnmapCallback> unmapping;
  Callbacks<ReleaseCallback> released;
};

}  // namespace gantry::memory
