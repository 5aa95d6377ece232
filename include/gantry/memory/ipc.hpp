#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry {

/// Names memory so that another process on this machine can open it; plain bytes, to be sent
/// anywhere.
struct IpcHandle {
  std::vector<std::byte> bytes;

  friend bool operator==(const IpcHandle&, const IpcHandle&) = default;
};

namespace memory {

using gantry::IpcHandle;

/// Another process's block, mapped here. The mapping ends with the last copy.
class ImportedBlock {
 public:
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  friend ImportedBlock import_ipc(const IpcHandle&, Device);
  std::shared_ptr<void> mapping_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
};

/// Exports a live block. The handle carries an event on the current stream of the block's device,
/// so an importer sees all work submitted before the export.
/// Throws: NotSupported if the block's memory cannot be shared.
[[nodiscard]] IpcHandle export_ipc(const Block& block);

/// Maps an exported block for use on `device` and makes its current stream wait for the export.
/// The same process short-cut gives the original memory. Throws: InvalidArgument for bytes that are
/// no handle; PeerLostError if the exporter is gone; NotSupported if devices cannot reach.
[[nodiscard]] ImportedBlock import_ipc(const IpcHandle& handle, Device device);

}  // namespace memory
}  // namespace gantry
