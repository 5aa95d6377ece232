#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry {

/// A handle by which another process on this machine opens memory. The program may send its bytes
/// by any means that only trusted processes can write to: the checksum in the bytes finds damage,
/// and is no signature. The importer checks with the kernel that the exporter has its user.
/// @since 0.1
struct IpcHandle {
  std::vector<std::byte> bytes;  ///< opaque; its format may change in every release

  friend bool operator==(const IpcHandle&, const IpcHandle&) = default;
};

namespace memory {

using gantry::IpcHandle;

class ImportLease;
class ImportedBlock;
[[nodiscard]] GANTRY_API ImportedBlock import_ipc(const IpcHandle& handle,
                                                  std::optional<Device> device);

/// A mapping of another process's block. The last copy releases it. A moved-from object has no
/// block: data() is null, bytes() is 0, and record_stream() has no effect.
///
/// The release does not block the host. The mapping ends, and the exporter learns of it, when the
/// work on the streams that use the block completes. These streams are the current one at the
/// import, the current one when the last copy is destroyed, and all of record_stream().
/// Thread safety: as std::shared_ptr.
/// @code
/// const memory::Buffer block = memory::allocate(Stream::current("cuda:0"), 1024);
/// const IpcHandle handle = memory::export_ipc(block.block());  // its bytes go to the importer
/// const memory::ImportedBlock imported = memory::import_ipc(handle);
/// @endcode
/// @since 0.1
class GANTRY_API ImportedBlock {
 public:
  /// First byte, in this process's address space.
  [[nodiscard]] void* data() const noexcept { return lease_ != nullptr ? data_ : nullptr; }
  /// Size of the exported block.
  [[nodiscard]] std::size_t bytes() const noexcept { return lease_ != nullptr ? bytes_ : 0; }
  /// Device that the block was mapped for.
  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Records that work on `stream` uses the block. The block is not released before it completes.
  void record_stream(const Stream& stream) const;

 private:
  friend ImportedBlock import_ipc(const IpcHandle&, std::optional<Device>);
  std::shared_ptr<ImportLease> lease_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
};

/// Exports a live block. The handle carries an event on the current stream of the block's device.
/// So an importer sees all work submitted before the export. The host does not block.
///
/// A handle may be imported many times, by many processes, or never. It does not keep the block
/// alive. A handle is valid while the exporter holds the block or an import of it exists. A block
/// that is freed while imports exist is in limbo. It is reused after the last import is released or
/// its process has ended.
///
/// Thread safety: any thread.
/// Throws: NotSupported if the block's memory cannot be shared, because it is not of the caching
/// allocator or is on a MIG instance; InvalidArgument if the block was freed.
/// @since 0.1
[[nodiscard]] GANTRY_API IpcHandle export_ipc(const Block& block);

/// Maps an exported block for use on `device` and makes its current stream wait for the export.
/// `device` defaults to the device of the memory.
///
/// If the exporter ends before the work of the export completes, the stream continues. The contents
/// are then undefined, and the next synchronizing call of `device` throws PeerLostError, once.
///
/// Blocks that share physical memory share one mapping. In the exporting process the import is the
/// original memory and prevents its reuse. An import stays valid after the end of its exporter;
/// with the backend "native" its contents are then undefined.
/// Device/stream: the current stream of `device`; the host waits for the exporter's reply, not for
/// devices.
/// Thread safety: any thread.
/// Throws: InvalidArgument for a malformed handle or a freed block; PeerLostError if the exporter
/// has ended; TimeoutError if the exporter runs but does not reply; NotSupported for an exporter on
/// another machine, of another user, or in another pid or network namespace. NotSupported also for
/// memory of a device that is invisible here, or to which `device` has no peer access.
/// @since 0.1
[[nodiscard]] GANTRY_API ImportedBlock import_ipc(const IpcHandle& handle,
                                                  std::optional<Device> device = std::nullopt);

/// The memory that this process shares on one device.
/// @since 0.1
struct IpcStats {
  std::size_t exports = 0;       ///< exported blocks, live or in limbo
  std::size_t imports = 0;       ///< imports in use, including imports of this process's own blocks
  std::size_t mapped_bytes = 0;  ///< mapped memory of other processes
  std::size_t pending_releases = 0;  ///< dropped imports that are not released yet
  std::size_t limbo_blocks = 0;      ///< freed blocks that other processes still use
  std::size_t limbo_bytes = 0;       ///< bytes of these blocks
  /// Bytes in limbo by the process (pid) that uses them; a block counts for each of its users.
  std::map<int, std::size_t> limbo_by_consumer;
};

/// Performs pending releases at once. It drops the references of ended processes, frees blocks in
/// limbo without references, and unmaps released imports whose work is complete. The host does not
/// wait for devices.
/// An import whose stream has failed stays mapped until that error has been thrown.
/// Thread safety: any thread.
/// @since 0.1
GANTRY_API void ipc_collect();

/// Returns the counts of `device`. Thread safety: any thread.
/// @since 0.1
[[nodiscard]] GANTRY_API IpcStats ipc_stats(Device device = Device::cuda());

}  // namespace memory
}  // namespace gantry
