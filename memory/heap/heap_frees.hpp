// The way of a freed block until any stream may reuse it.
#pragma once

#include <cstdint>

#include "memory/blocks/deferred_frees.hpp"
#include "memory/heap/heap_stats.hpp"
#include "memory/heap/pool_set.hpp"

namespace gantry::memory {

/// The frees of a heap that are not complete: held by graphs, deferred by streams, or free for one
/// stream only.
///
/// Call every member with the heap's lock held, except captures_of().
class HeapFrees {
 public:
  HeapFrees(PoolSet& pools, HeapStats& stats) : pools_(pools), stats_(stats) {}
  HeapFrees(const HeapFrees&) = delete;
  HeapFrees& operator=(const HeapFrees&) = delete;

  /// The captures in progress of streams that use the block, which the caller is about to free.
  [[nodiscard]] static CaptureList captures_of(const HeapBlock& block) noexcept;
  /// Frees a block that is `in_transition`. The caller's own free is in progress, so the block's
  /// streams exist. Graphs of `captures` may use the block.
  void free(HeapBlock& block, CaptureList captures) noexcept;
  /// Likewise, but the block stays in limbo until free_from_limbo().
  void put_in_limbo(HeapBlock& block, CaptureList captures) noexcept;
  void free_from_limbo(HeapBlock& block) noexcept;

  /// Whether the driver is asked how far the streams are.
  enum class Asking : std::uint8_t { nobody, driver };
  /// Completes the frees that are known to be complete. True if blocks became free, or free for
  /// more streams.
  bool promote_completed(Asking asking = Asking::nobody) noexcept;
  void poll() noexcept { promote_completed(Asking::driver); }
  /// Waits for the oldest use, of `only` if it is not nullptr, without the lock. False if there is
  /// none for which the host can `wait`. Throws: CudaError.
  bool wait_for_oldest(HeapLock& lock, const Pool* only = nullptr,
                       HostWait wait = HostWait::anyhow);
  /// Likewise for all uses that exist now. Later ones are left out, since waiting for them might
  /// never end.
  void wait_for_all(HeapLock& lock);
  /// Asserts what holds for the blocks that wait for the end of graphs.
  void verify() const noexcept { held_.verify(); }

 private:
  [[nodiscard]] StreamUse oldest_use(const Pool* only, HostWait wait) const noexcept;
  template <class Wait>
  void wait_unlocked(HeapLock& lock, Wait&& wait);
  void free_deferred(HeapBlock& block) noexcept;
  [[nodiscard]] bool hold(HeapBlock& block, CaptureList captures) noexcept;
  bool release_held() noexcept;
  static void complete(HeapBlock& block) noexcept;
  void insert(HeapBlock& block) noexcept;
  void insert_completed(HeapBlock& block) noexcept;

  PoolSet& pools_;
  HeapStats& stats_;
  HeldBlocks held_;
};

/// As record_trace, for an event of a block.
void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept;

}  // namespace gantry::memory
