#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::memory {

class Allocator;

/// Allocated memory. It carries the allocator's handle, so that a free needs no look-up.
struct Block {
  void* data = nullptr;            ///< first byte; nullptr if there is no memory
  std::size_t bytes = 0;           ///< requested size
  Device device = Device::cpu();   ///< of the memory
  Allocator* allocator = nullptr;  ///< frees it; nullptr: nothing to free
  void* handle = nullptr;          ///< the allocator's own bookkeeping
};

/// A source of device memory.
///
/// A block belongs to the stream it was allocated on: work on that stream may use it at once, and
/// it may be reused on that stream as soon as it is freed. Use on another stream needs an event
/// order made by the caller, and record_stream before the free. An external stream
/// (Stream::external) must exist until the free.
///
/// Thread safety: all calls from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// Allocates `bytes` for work on `stream`; 0 bytes give a null block. The host blocks only for
  /// out-of-memory recovery. Throws: OutOfMemoryError.
  [[nodiscard]] virtual Block allocate(std::size_t bytes, Stream stream) = 0;
  /// Frees a block and clears it. Work that is already submitted may still use the memory.
  virtual void deallocate(Block& block) noexcept = 0;
  /// Records that `stream` uses the block: it is not reused before the stream has completed the
  /// work submitted before the free. The default does nothing; an allocator that caches must
  /// override it.
  virtual void record_stream(const Block& /*block*/, const Stream& /*stream*/) {}
  /// As record_stream, for a use that ends now: only work submitted to `stream` so far uses the
  /// block. Work submitted between now and the free need not be waited for.
  virtual void record_use(const Block& block, const Stream& stream) {
    record_stream(block, stream);
  }
  /// Releases the cached memory of `device` to the driver. The default does nothing.
  virtual void empty_cache(Device /*device*/) {}
  /// True if peers with access to the block's device can use every block. Otherwise gantry queries
  /// each pointer before a peer kernel uses it.
  [[nodiscard]] virtual bool is_peer_accessible() const { return false; }
  /// Name of the allocator: "caching", "native", …; "custom" by default.
  [[nodiscard]] virtual std::string name() const { return "custom"; }
};

}  // namespace gantry::memory
