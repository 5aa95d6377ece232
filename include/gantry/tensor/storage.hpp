#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <gantry/device/device.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/ipc.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// The memory that one or several tensors look at, shared and ref-counted.
///
/// It is a block of one of gantry's allocators, foreign memory with a deleter, or another process's
/// block. The memory goes back with the last copy of the handle.
///
/// Thread safety: as std::shared_ptr.
class Storage {
 public:
  /// No memory at all.
  Storage() = default;
  /// `bytes` of new memory on `device`; device memory belongs to the current stream of `device`,
  /// `pinned` gives page-locked host memory. Throws: OutOfMemoryError.
  [[nodiscard]] static Storage allocate(std::size_t bytes, Device device, bool pinned = false);
  /// Wraps memory that somebody else made; `deleter(data)`, if any, runs with the last handle.
  [[nodiscard]] static Storage foreign(void* data, std::size_t bytes, Device device,
                                       std::function<void(void*)> deleter = {});
  /// Wraps another process's block, which stays mapped until the last handle is gone.
  [[nodiscard]] static Storage imported(memory::ImportedBlock block);

  /// False for a default-made handle.
  [[nodiscard]] bool defined() const { return impl_ != nullptr; }
  /// First byte; null if bytes() is 0.
  [[nodiscard]] void* data() const;
  /// Size of the memory.
  [[nodiscard]] std::size_t bytes() const;
  /// Device of the memory.
  [[nodiscard]] Device device() const;
  /// True for page-locked host memory.
  [[nodiscard]] bool is_pinned() const;
  /// True for device memory that kernels of every device with peer access may use. Memory of other
  /// libraries may be open to its own device alone (virtual memory, driver pools).
  [[nodiscard]] bool is_open_to_peers() const;
  /// The allocator's block, null for foreign and imported memory.
  [[nodiscard]] const memory::Block* block() const;
  /// Tells the allocator, or the exporter of imported memory, that work on `stream` uses the
  /// memory; nothing for foreign memory.
  void record_stream(const Stream& stream) const;
  /// As record_stream, for work submitted to `stream` until now only.
  void record_use(const Stream& stream) const;
  /// Number of handles to this memory.
  [[nodiscard]] long use_count() const { return impl_.use_count(); }

  /// True if both handles share one memory.
  friend bool operator==(const Storage& a, const Storage& b) = default;

 private:
  struct Impl;
  explicit Storage(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

}  // namespace gantry
