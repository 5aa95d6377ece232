// The right to use an imported block.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/memory/ipc.hpp>

#include "memory/ipc/importer.hpp"
#include "memory/ipc/peer.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

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

  void map(std::shared_ptr<ImportedExtent> extent) { extent_ = std::move(extent); }
  [[nodiscard]] const std::shared_ptr<ImportedExtent>& extent() const { return extent_; }
  /// Records that work on `stream` uses the block.
  void add_stream(const Stream& stream);

  /// Returns the number of leases for `device`.
  [[nodiscard]] static std::size_t count(int device);

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
