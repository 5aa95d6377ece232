#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::memory {

class Allocator;

/// A piece of memory on loan from an Allocator; carries its handle, so a free needs no look-up.
struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;           ///< what was asked for
  Device device = Device::cpu();   ///< where it lives
  Allocator* allocator = nullptr;  ///< who takes it back; nullptr: nothing to free
  void* handle = nullptr;          ///< the allocator's own bookkeeping
};

/// Where device memory comes from.
///
/// A block belongs to the stream it was allocated on: work on that stream may use it at once, and
/// it may be reused on that stream as soon as it is freed. Use on another stream needs an event
/// order made by the caller, and record_stream before the free. Streams from outside
/// (Stream::external) have to live until the free.
///
/// Thread safety: all calls from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// `bytes` of memory for work on `stream`; 0 bytes give a null block. The host does not block
  /// unless memory is short. Throws: OutOfMemoryError.
  [[nodiscard]] virtual Block allocate(std::size_t bytes, Stream stream) = 0;
  /// Takes a block back and clears it; work already submitted may still use the memory.
  virtual void deallocate(Block& block) noexcept = 0;
  /// Tells that work on `stream` uses the block: it is not reused before that work is done. By
  /// default nothing happens: an allocator that hands freed memory out again has to override it.
  virtual void record_stream(const Block& /*block*/, const Stream& /*stream*/) {}
  /// As record_stream, but tells the end too: only work submitted to `stream` so far uses the
  /// block, so it need not wait for what is submitted between now and the free.
  virtual void record_use(const Block& block, const Stream& stream) {
    record_stream(block, stream);
  }
  /// Gives cached memory of `device` that nothing uses back to the driver; by default there is
  /// none.
  virtual void empty_cache(Device /*device*/) {}
  /// True if every device that has peer access may use all blocks, whatever they are made of; else
  /// gantry asks the driver about each one that other devices' kernels could use.
  [[nodiscard]] virtual bool opens_to_peers() const { return false; }
  /// "caching", "native", …; "custom" unless overridden.
  [[nodiscard]] virtual std::string name() const { return "custom"; }
};

}  // namespace gantry::memory
