// The bytes of an IpcHandle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gantry/device/driver.hpp>
#include <gantry/memory/ipc.hpp>

#include "core/process_stamp.hpp"

namespace gantry::memory {

/// What an IpcHandle says. On the wire: fixed-width little-endian fields without padding, behind
/// the magic "GIPC" and a version, before a checksum.
struct IpcMessage {
  ProcessStamp exporter;
  std::string device_uuid;
  NativeMemoryHandle segment;
  std::uint64_t offset = 0;  ///< of the block in the segment, in bytes
  std::uint64_t bytes = 0;
  /// Reached when the work before the export is done; none if it was done at the export.
  std::optional<NativeEventHandle> event;
};

[[nodiscard]] IpcHandle encode(const IpcMessage& message);
/// Throws: InvalidArgument unless `handle` is what encode() made.
[[nodiscard]] IpcMessage decode(const IpcHandle& handle);

}  // namespace gantry::memory
