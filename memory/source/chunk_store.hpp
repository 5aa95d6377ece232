// Physical memory of one device, in chunks without addresses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <gantry/device/driver.hpp>

namespace gantry::memory {

/// Fine chunks let a harvest take back nearly every free byte between blocks; coarse ones keep the
/// number of mappings of large blocks small. See docs/memory.md.
inline constexpr std::size_t kFineChunkBytes = std::size_t{2} << 20;
inline constexpr std::size_t kCoarseChunkBytes = std::size_t{32} << 20;
/// Blocks from this size on are made of coarse chunks in any case.
inline constexpr std::size_t kCoarseBlockBytes = std::size_t{512} << 20;

/// One piece of physical memory.
struct Chunk {
  NativeChunk native = NativeChunk::none;
  std::size_t bytes = 0;
};

/// All chunks that this process has of one device: who maps them does not matter here. Those that
/// nobody maps are spare.
///
/// Thread safety: every member may be called from any thread; no lock is held over driver calls.
class ChunkStore {
 public:
  explicit ChunkStore(int device) : device_(device) {}
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  /// Chunks of `bytes` together, a multiple of kFineChunkBytes: spare ones first, then new ones,
  /// coarse where they fit if `coarse` or if there are very many chunks already,
  /// while held() stays within `limit`. Empty if that is not enough; no
  /// more is held then than before. Throws: CudaError, std::bad_alloc; nothing is lost.
  [[nodiscard]] std::vector<Chunk> acquire(std::size_t bytes, std::size_t limit, bool coarse);
  /// Takes chunks that are not mapped any more.
  void give_back(std::vector<Chunk> chunks) noexcept;
  /// Gives spare chunks back to the driver until `bytes` of them went or none is left; tells how
  /// many bytes went. Never throws: a chunk that the driver does not take stays spare.
  std::size_t release_spare(std::size_t bytes = ~std::size_t{0}) noexcept;

  /// Bytes that the driver counts as this process's.
  [[nodiscard]] std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t spare() const;
  /// Chunks that were ever made and given back.
  [[nodiscard]] std::int64_t created() const { return created_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t released() const { return released_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool may_be_had(std::size_t bytes, std::size_t limit) const;
  [[nodiscard]] bool take_spare(std::size_t& missing, std::vector<Chunk>& taken);
  [[nodiscard]] bool create(std::size_t bytes, std::size_t limit, std::vector<Chunk>& made);

  const int device_;
  mutable std::mutex mutex_;
  std::vector<Chunk> fine_;
  std::vector<Chunk> coarse_;
  std::atomic<std::size_t> held_{0};
  std::atomic<std::int64_t> created_{0};
  std::atomic<std::int64_t> released_{0};
};

}  // namespace gantry::memory
