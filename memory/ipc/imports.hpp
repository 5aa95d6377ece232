// Other processes' memory that is mapped here.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/device/driver.hpp>

#include "memory/ipc/peer.hpp"

namespace gantry::memory {

/// Another process's extent, mapped for one device. The destructor unmaps; by then no work may use
/// it any more. Only the extent's own size is reserved as addresses.
class ImportedExtent {
 public:
  /// Maps the extent of `message`, to which a reference is held; `owner` is the device that it
  /// lives on. Throws: CudaError, and what IpcPeer::fetch throws.
  ImportedExtent(IpcPeer& peer, const IpcMessage& message, int device, int owner);
  ~ImportedExtent();
  ImportedExtent(const ImportedExtent&) = delete;
  ImportedExtent& operator=(const ImportedExtent&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] int device() const { return device_; }
  /// Lets the peers use it that have got access to its device meanwhile. Throws: CudaError.
  void open_to_peers();

 private:
  void map_chunks(IpcPeer& peer, const IpcMessage& message);
  void unmap_chunks() noexcept;

  const int device_;
  const int owner_;
  const std::size_t bytes_;
  std::byte* base_ = nullptr;
  bool is_segment_ = false;
  std::size_t mapped_ = 0;  ///< of the chunks, in bytes from the base
  std::mutex opening_;
  std::vector<int> users_;  ///< devices to which the chunks are open
};

/// The mapping of `message`'s extent for `device`: the one in use if there is one, else a new one.
/// Thread safety: any thread. Throws: as ImportedExtent.
[[nodiscard]] std::shared_ptr<ImportedExtent> import_extent(IpcPeer& peer,
                                                            const IpcMessage& message, int device,
                                                            int owner);

/// Bytes that are mapped for `device`. Thread safety: any thread.
[[nodiscard]] std::size_t imported_bytes(int device);

}  // namespace gantry::memory
