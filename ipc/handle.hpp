// The content of an IpcHandle, and the processes that can import it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gantry/extend/driver.hpp>
#include <gantry/ipc/ipc.hpp>

#include "core/processes/process_stamp.hpp"

namespace gantry::memory {

/// A process with its machine, namespaces and user. Two processes share memory only if all but the
/// process are equal.
struct ProcessScope {
  ProcessStamp process;
  std::uint64_t machine = 0;  ///< hash of the kernel's boot id: one boot of one machine
  std::uint64_t pid_namespace = 0;
  std::uint64_t net_namespace = 0;
  std::uint32_t user = 0;

  friend bool operator==(const ProcessScope&, const ProcessScope&) = default;
};

/// Returns the scope of the calling process.
[[nodiscard]] ProcessScope this_process_scope();

/// Throws: NotSupported, with the remedy, if this process cannot share memory with `exporter`;
/// PeerLostError if the exporter has ended.
void check_reachable(const ProcessScope& exporter);

/// Throws: PeerLostError if `exporter` has ended.
void check_running(const ProcessStamp& exporter);

/// How an importer opens the memory of a handle.
enum class IpcKind : std::uint8_t {
  empty,    ///< no bytes: nothing to open
  chunks,   ///< by descriptors of its chunks, which the exporter's service sends
  segment,  ///< by its name, through the driver
};

/// The decoded fields of an IpcHandle. The encoding is the magic "GIPC", a version, fixed-width
/// little-endian fields without padding, and a checksum. Chunk sizes travel with the descriptors.
struct IpcHandleFields {
  IpcKind kind = IpcKind::empty;
  ProcessScope exporter;
  std::string device_uuid;
  std::uint64_t nonce = 0;       ///< of the exporter's service; part of its socket's name
  std::uint32_t slot = 0;        ///< of the block in the exporter's table
  std::uint64_t generation = 0;  ///< tells the block from later ones in the slot
  std::uint64_t extent_id = 0;
  std::uint64_t extent_bytes = 0;
  std::uint64_t offset = 0;  ///< of the block in the extent, in bytes
  std::uint64_t bytes = 0;
  NativeMemoryHandle segment;
  /// The event behind the work before the export; none if that work was complete at the export.
  std::optional<NativeEventHandle> event;
};

[[nodiscard]] IpcHandle encode(const IpcHandleFields& fields);
/// Throws: InvalidArgument unless encode() made `handle`.
[[nodiscard]] IpcHandleFields decode(const IpcHandle& handle);

}  // namespace gantry::memory
