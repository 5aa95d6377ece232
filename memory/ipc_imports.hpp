// Segments of other processes that are mapped here.
#pragma once

#include <memory>

#include <gantry/device/driver.hpp>

namespace gantry::memory {

/// Another process's segment, mapped for one device. The destructor waits for that device's work,
/// then unmaps.
class ImportedSegment {
 public:
  ImportedSegment(int device, const NativeMemoryHandle& name);
  ~ImportedSegment();
  ImportedSegment(const ImportedSegment&) = delete;
  ImportedSegment& operator=(const ImportedSegment&) = delete;

  [[nodiscard]] void* base() const { return base_; }

 private:
  int device_;
  void* base_;
};

/// The mapping of a segment for `device`: the one in use if there is one, else a new one.
/// Thread safety: any thread. Throws: CudaError.
[[nodiscard]] std::shared_ptr<ImportedSegment> import_segment(int device,
                                                              const NativeMemoryHandle& name);

}  // namespace gantry::memory
