// The bytes of an IpcHandle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gantry/device/driver.hpp>
#include <gantry/memory/ipc.hpp>

#include "memory/ipc/origin.hpp"

namespace gantry::memory {

/// How the memory behind a handle is opened.
enum class IpcKind : std::uint8_t {
  empty,    ///< not at all: no bytes
  chunks,   ///< the exporter's service sends descriptors of its chunks
  segment,  ///< by its name, through the driver
};

/// What an IpcHandle says. On the wire: fixed-width little-endian fields without padding, behind
/// the magic "GIPC" and a version, before a checksum. Chunk sizes travel with their descriptors.
struct IpcMessage {
  IpcKind kind = IpcKind::empty;
  IpcOrigin exporter;
  std::string device_uuid;
  std::uint64_t nonce = 0;       ///< of the exporter's service; part of its socket's name
  std::uint32_t slot = 0;        ///< the block's place in the exporter's table
  std::uint64_t generation = 0;  ///< tells it from later blocks in that place
  std::uint64_t extent_id = 0;
  std::uint64_t extent_bytes = 0;
  std::uint64_t offset = 0;  ///< of the block in the extent, in bytes
  std::uint64_t bytes = 0;
  NativeMemoryHandle segment;
  /// Reached when the work before the export is done; none if it was done at the export.
  std::optional<NativeEventHandle> event;
};

[[nodiscard]] IpcHandle encode(const IpcMessage& message);
/// Throws: InvalidArgument unless `handle` is what encode() made.
[[nodiscard]] IpcMessage decode(const IpcHandle& handle);

}  // namespace gantry::memory
