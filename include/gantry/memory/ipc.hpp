#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry {

/// Names memory so that another process on this machine can open it; plain bytes, to be sent
/// anywhere.
struct IpcHandle {
  std::vector<std::byte> bytes;  ///< opaque; its format may change in every release

  friend bool operator==(const IpcHandle&, const IpcHandle&) = default;
};

namespace memory {

using gantry::IpcHandle;

class ImportLease;

/// Another process's block, mapped here. The memory is given back with the last copy. A moved-from
/// one holds none: null, 0 bytes, and record_stream does nothing.
///
/// Giving back does not block the host: the mapping ends, and the exporter learns of it, once the
/// work is done that was submitted to the streams that use the block: the one that was current at
/// the import, those of record_stream, and the one that is current when the last copy goes.
/// Thread safety: as std::shared_ptr.
class ImportedBlock {
 public:
  /// First byte, in this process's address space.
  [[nodiscard]] void* data() const { return lease_ != nullptr ? data_ : nullptr; }
  /// Size of the exported block.
  [[nodiscard]] std::size_t bytes() const { return lease_ != nullptr ? bytes_ : 0; }
  /// Device that the block was mapped for.
  [[nodiscard]] Device device() const { return device_; }
  /// Tells that work on `stream` uses the block: it is not given back before that work is done.
  void record_stream(const Stream& stream) const;

 private:
  friend ImportedBlock import_ipc(const IpcHandle&, Device);
  std::shared_ptr<ImportLease> lease_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
};

/// Exports a live block. The handle carries an event on the current stream of the block's device,
/// so an importer sees all work submitted before the export. The host does not block.
///
/// A handle may be imported many times, by many processes, or never. It keeps nothing alive by
/// itself: it is good as long as the exporter holds the block, and after the exporter freed it as
/// long as some import of it is alive. Until the last of these is given back, or its process has
/// died, a freed block stays in limbo and is not reused.
///
/// Thread safety: any thread.
/// Throws: NotSupported if the block's memory cannot be shared (not of the caching allocator, or on
/// a MIG instance); InvalidArgument if the block was freed.
[[nodiscard]] IpcHandle export_ipc(const Block& block);

/// Maps an exported block for use on `device` and makes its current stream wait for the export.
///
/// If the exporter ends before the work that it had submitted by then, the stream goes on, and the
/// next synchronizing call of `device` throws PeerLostError, once; the content is undefined.
///
/// Blocks that share physical memory share one mapping. In the exporting process the import is the
/// original memory and keeps it from being reused. An import outlives its exporter's death; with
/// the backend "native" its content is then undefined.
/// Device/stream: the current stream of `device`; the host waits for the exporter's answer, not for
/// devices.
/// Thread safety: any thread.
/// Throws: InvalidArgument for bytes that are no handle and for a block that was freed;
/// PeerLostError if the exporter is gone; NotSupported if it cannot be reached (another machine,
/// user, pid or network namespace), if its device is not visible here, or has no peer access to
/// `device`; TimeoutError if it lives but does not answer.
[[nodiscard]] ImportedBlock import_ipc(const IpcHandle& handle, Device device);

/// What this process shares on one device at the moment.
struct IpcStats {
  std::size_t exports = 0;           ///< exported blocks that are live or in limbo
  std::size_t imports = 0;           ///< imports in use, also those of this process's own blocks
  std::size_t mapped_bytes = 0;      ///< other processes' memory that is mapped for the device
  std::size_t pending_releases = 0;  ///< imports given back whose device work is not done
  std::size_t limbo_blocks = 0;      ///< blocks freed here that others still use
  std::size_t limbo_bytes = 0;       ///< bytes of these blocks
  /// Bytes in limbo by the process (pid) that uses them; a block counts for each of its users.
  std::map<int, std::size_t> limbo_by_consumer;
};

/// Looks after what is shared, now and not in the background: takes back the blocks in limbo that
/// nobody uses any more, drops the references of dead processes, and ends the mappings whose work
/// is done. The host does not wait for devices.
/// An import whose stream has failed ends after that error was reported to somebody.
/// Thread safety: any thread.
void ipc_collect();

/// Counts what `device` shares. Thread safety: any thread.
[[nodiscard]] IpcStats ipc_stats(Device device = Device::cuda());

}  // namespace memory
}  // namespace gantry
