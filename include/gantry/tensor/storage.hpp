#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// The reference-counted memory of one or several tensors.
///
/// The memory is a block of one of gantry's allocators, foreign memory with a deleter, or a block
/// imported from another process. The last handle frees it.
///
/// Thread safety: as std::shared_ptr.
/// @code
/// const Storage storage = ones({2, 3}, "cuda:0").storage();
/// std::cout << storage.bytes() << " bytes on " << storage.device();
/// @endcode
/// @since 0.1
class GANTRY_API Storage {
 public:
  /// A handle without memory.
  Storage() = default;
  /// Allocates `bytes` on `device`. Device memory belongs to the current stream of `device`.
  /// `pinned` allocates page-locked host memory. Throws: OutOfMemoryError.
  [[nodiscard]] static Storage allocate(std::size_t bytes, Device device, bool pinned = false);
  /// Wraps foreign memory. When the last handle is destroyed, `deleter(data)` is called, if there
  /// is one.
  [[nodiscard]] static Storage foreign(void* data, std::size_t bytes, Device device,
                                       std::function<void(void*)> deleter = {});
  /// Wraps another process's block. It stays mapped until the last handle is destroyed.
  [[nodiscard]] static Storage imported(memory::ImportedBlock block);

  /// False for a default-constructed handle.
  [[nodiscard]] bool defined() const noexcept { return impl_ != nullptr; }
  /// The first byte; null if bytes() is 0.
  [[nodiscard]] void* data() const noexcept;
  /// Size of the memory.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Device of the memory.
  [[nodiscard]] Device device() const noexcept;
  /// True for page-locked host memory.
  [[nodiscard]] bool is_pinned() const noexcept;
  /// True if kernels of every device with peer access may use this device memory. False for foreign
  /// virtual memory and memory pools that only their own device can access.
  [[nodiscard]] bool is_peer_accessible() const;
  /// The allocator's block; null for foreign and imported memory.
  [[nodiscard]] const memory::Block* block() const noexcept;
  /// Records that work on `stream` uses the memory. After the last handle is destroyed, the memory
  /// waits for the work submitted to `stream` by then. Only after this it is reused or unmapped.
  /// Has no effect on foreign memory.
  void record_stream(const Stream& stream) const;
  /// As record_stream(), for the work that is already submitted only. Later work on `stream` does
  /// not delay the reuse.
  void record_use(const Stream& stream) const;
  /// The number of handles to this memory.
  [[nodiscard]] long use_count() const noexcept { return impl_.use_count(); }

  /// True if both handles refer to the same memory.
  friend bool operator==(const Storage& a, const Storage& b) = default;

 private:
  struct GANTRY_LOCAL Impl;
  explicit Storage(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

}  // namespace gantry
