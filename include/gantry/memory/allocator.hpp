#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::memory {

class Allocator;

/// Default alignment of device memory, in bytes: that of cudaMalloc.
inline constexpr std::size_t kDefaultAlignment = 256;

/// A piece of allocated memory. It carries the allocator's handle, so a free needs no look-up.
/// @since 0.1
struct Block {
  void* data = nullptr;            ///< first byte; nullptr for an empty block
  std::size_t bytes = 0;           ///< requested size
  Device device = Device::cpu();   ///< device of the memory
  Allocator* allocator = nullptr;  ///< the allocator that frees it; nullptr: nothing to free
  void* handle = nullptr;          ///< for the allocator's own use
};

/// Interface of allocators.
///
/// A block belongs to the stream that it is allocated on. Work on that stream may use it at once.
/// After the free, the allocator may reuse it on that stream at once. For use on another stream the
/// caller makes an event order, and calls record_stream() before the free. An external stream
/// (Stream::external) must exist until the free. The order of arguments is that of CCCL's memory
/// resources.
///
/// Thread safety: every member may be called from any thread.
/// @code
/// memory::Allocator& pinned = memory::pinned_allocator();
/// memory::Block block = pinned.allocate(Stream::current("cuda:0"), 1024);
/// pinned.deallocate(block);
/// @endcode
/// @since 0.1
class GANTRY_API Allocator {
 public:
  virtual ~Allocator() = default;

  /// Allocates `bytes` for work on `stream`, at an address that is a multiple of `alignment`. 0
  /// bytes give a null block. The host blocks only for out-of-memory recovery.
  /// Throws: OutOfMemoryError; InvalidArgument unless `alignment` is a power of two; NotSupported
  /// if the allocator cannot align to it. gantry's own allocators serve every alignment.
  [[nodiscard]] virtual Block allocate(const Stream& stream, std::size_t bytes,
                                       std::size_t alignment = kDefaultAlignment) = 0;
  /// Frees a block and clears it. Work that is already submitted may still use the memory.
  virtual void deallocate(Block& block) noexcept = 0;
  /// Records that `stream` uses the block. The block is not reused before that stream completes
  /// the work submitted before the free. The default does nothing; an allocator that caches must
  /// override it.
  virtual void record_stream(const Block& /*block*/, const Stream& /*stream*/) {}
  /// As record_stream(), but only work that is already submitted to `stream` uses the block. The
  /// default calls record_stream().
  virtual void record_use(const Block& block, const Stream& stream) {
    record_stream(block, stream);
  }
  /// Makes `stream` the stream that the block belongs to. All work that uses the block runs before
  /// the later work of `stream`. The former stream may be destroyed, and no call looks at it again.
  /// The default calls record_use(), and the block stays with its stream.
  /// @code
  /// const Stream producer = Stream::from_pool("cuda:0");
  /// const Stream consumer = Stream::from_pool("cuda:0");
  /// memory::Buffer buffer = memory::allocate(producer, 4096);
  /// consumer.wait(producer);
  /// buffer.block().allocator->set_stream(buffer.block(), consumer);
  /// @endcode
  /// @since 0.3
  virtual void set_stream(const Block& block, const Stream& stream) { record_use(block, stream); }
  /// Releases the cached memory of `device` to the driver. The default does nothing.
  virtual void empty_cache(Device /*device*/) {}
  /// True if peers with access to the block's device can use every block. Otherwise gantry queries
  /// each pointer before a peer kernel uses it.
  [[nodiscard]] virtual bool is_peer_accessible() const { return false; }
  /// Name of the allocator: "caching", "native", …; "custom" by default.
  [[nodiscard]] virtual std::string name() const { return "custom"; }
};

}  // namespace gantry::memory
