// The right to use an imported block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/ipc/ipc.hpp>

#include "core/assert.hpp"
#include "ipc/importer.hpp"
#include "ipc/peer.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// Note [Releasing imports without waiting]
/// Work that is queued on its streams may still use a dropped import. The destructor of the last
/// lease therefore records an event on each of these streams. The thread of a CompletionQueue polls
/// the events. When all are reached, it unmaps the extent and then releases the reference. In this
/// order, the exporter learns of the release after the memory is unmapped.
/// The thread is not the one that signals semaphores. With the backend "native" the unmapping is
/// cuIpcCloseMemHandle. It waits for every stream of the device (driver 580.159), and such a stream
/// may wait for a semaphore. One thread for both would therefore hang.
/// DeferredFrees cannot serve here: its queues are polled by allocations. An importer that calls
/// gantry no more must release its references, too.
/// An external stream must live until the drop. It is known to be destroyed if its handle was
/// reused or the driver rejects it. Then only a synchronization of its device completes the work.

/// One reference to an exported block. The destructor releases it in stream order; see
/// Note [Releasing imports without waiting].
///
/// Thread safety: every member may be called from any thread, map() before all others.
class ImportLease {
 public:
  /// Takes over a reference to a block of this process.
  ImportLease(std::uint32_t slot, Block block, int device);
  /// Takes over a reference to another process's block.
  ImportLease(std::uint32_t slot, std::shared_ptr<IpcPeer> peer, int device);
  ~ImportLease();
  ImportLease(const ImportLease&) = delete;
  ImportLease& operator=(const ImportLease&) = delete;

  void map(std::shared_ptr<ImportedExtent> extent) {
    GANTRY_ASSERT(extent_ == nullptr && peer_ != nullptr, "a lease gets a mapping that it has");
    extent_ = std::move(extent);
  }
  [[nodiscard]] const std::shared_ptr<ImportedExtent>& extent() const { return extent_; }
  /// Records that work on `stream` uses the block.
  void add_stream(const Stream& stream);

  /// Returns the number of leases for `device`.
  [[nodiscard]] static std::size_t count(int device);
  /// Returns the number of destroyed leases for `device` that are not released.
  [[nodiscard]] static std::size_t count_pending(int device);
  /// Performs the releases whose work is complete. Returns after those that another thread began.
  static void release_completed() noexcept;

 private:
  const std::uint32_t slot_;
  const int device_;
  const Block own_;  ///< the original, in the exporting process
  std::shared_ptr<IpcPeer> peer_;
  std::shared_ptr<ImportedExtent> extent_;
  std::mutex mutex_;
  std::vector<StreamClock*> streams_;
};

}  // namespace gantry::memory
