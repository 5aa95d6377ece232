// Segments of other processes that are mapped here.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include <gantry/device/driver.hpp>

namespace gantry::memory {

/// Another process's segment, mapped for one device, and the events that its exports came with. The
/// destructor waits for that device's work, then unmaps.
///
/// Events are opened for the mapping's device and stay open as long as it: CUDA does not take
/// kindly to an imported event that is closed while a stream of another device still waits for it.
class ImportedSegment {
 public:
  ImportedSegment(int device, const NativeMemoryHandle& name);
  ~ImportedSegment();
  ImportedSegment(const ImportedSegment&) = delete;
  ImportedSegment& operator=(const ImportedSegment&) = delete;

  [[nodiscard]] void* base() const { return base_; }
  /// Makes later work on `stream`, of the mapping's device, wait for the exporter's event.
  /// Thread safety: any thread. Throws: CudaError.
  void wait_for(const NativeEventHandle& event, NativeStream stream);

 private:
  int device_;
  void* base_;
  std::mutex mutex_;
  std::map<std::array<std::byte, 64>, NativeEvent> events_;
};

/// The mapping of a segment for `device`: the one in use if there is one, else a new one.
/// Thread safety: any thread. Throws: CudaError.
[[nodiscard]] std::shared_ptr<ImportedSegment> import_segment(int device,
                                                              const NativeMemoryHandle& name);

}  // namespace gantry::memory
