// Names of files and of memory that processes share.
#pragma once

#include <cstdint>
#include <string>

#include <gantry/extend/driver.hpp>

#include "core/processes/process_stamp.hpp"

namespace gantry::sim {

/// A file descriptor of some process, and the file that it must still name.
struct FileName {
  ProcessStamp process;
  std::int32_t descriptor = -1;
  std::uint64_t inode = 0;

  friend bool operator==(const FileName&, const FileName&) = default;
};

/// Content of a NativeMemoryHandle.
struct MemoryName {
  FileName file;
  std::uint64_t bytes = 0;

  friend bool operator==(const MemoryName&, const MemoryName&) = default;
};

[[nodiscard]] FileName name_file(int descriptor);
/// Throws: CudaError 400 if the process that exported something has ended.
void require_exporter(const ProcessStamp& process, const std::string& doing, int device);
/// Opens the file of another process; the caller closes the descriptor.
/// Throws: CudaError 400 if the process or the file is gone, 304 if the system refuses or the file
/// belongs to another user.
[[nodiscard]] int open_file(const FileName& file, const std::string& doing, int device);

[[nodiscard]] NativeMemoryHandle encode(const MemoryName& name);
/// Throws: CudaError 1 for bytes that are no handle.
[[nodiscard]] MemoryName decode(const NativeMemoryHandle& handle, const std::string& doing,
                                int device);

}  // namespace gantry::sim
