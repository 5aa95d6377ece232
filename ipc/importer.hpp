// Other processes' memory that is mapped in this one.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "ipc/peer.hpp"

namespace gantry::memory {

/// Another process's extent, mapped for one device. The destructor unmaps it; no work may use it
/// then. Reserves no more addresses than the extent's size.
class ImportedExtent {
 public:
  /// Maps the extent of `fields`, to which the caller holds a reference; `owner` is the device of
  /// the memory. Throws: CudaError, and the exceptions of IpcPeer::fetch_chunks.
  ImportedExtent(IpcPeer& peer, const IpcHandleFields& fields, int device, int owner);
  ~ImportedExtent();
  ImportedExtent(const ImportedExtent&) = delete;
  ImportedExtent& operator=(const ImportedExtent&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] int device() const { return device_; }
  /// Maps the extent for the peers that got access to its device since the last call.
  /// Throws: CudaError.
  void open_to_peers();

 private:
  void map_chunks(IpcPeer& peer, const IpcHandleFields& fields);
  void unmap_chunks() noexcept;

  const int device_;
  const int owner_;
  const std::size_t bytes_;
  std::byte* base_ = nullptr;
  bool is_segment_ = false;
  std::size_t mapped_ = 0;  ///< bytes of mapped chunks, from the base
  std::mutex access_mutex_;
  std::vector<int> users_;  ///< devices that can access the chunks
};

/// Returns the mapping of `fields`' extent for `device`: the one in use if there is one, else a new
/// one. Thread safety: any thread. Throws: as ImportedExtent.
[[nodiscard]] std::shared_ptr<ImportedExtent> import_extent(IpcPeer& peer,
                                                            const IpcHandleFields& fields,
                                                            int device, int owner);

/// Returns the bytes that are mapped for `device`. Thread safety: any thread.
[[nodiscard]] std::size_t imported_bytes(int device);

}  // namespace gantry::memory
