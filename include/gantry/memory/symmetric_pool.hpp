#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::memory {

class SymmetricHeap;

/// How the memory of a SymmetricPool is used.
struct SymmetricUsage {
  std::size_t symmetric_bytes = 0;  ///< live symmetric blocks, rounded to the pool's grain
  std::size_t local_bytes = 0;      ///< live local blocks
  std::size_t symmetric_end = 0;    ///< offset where the last live symmetric block ends
  std::size_t local_begin = 0;      ///< offset where the first live local block begins, or the end
};

/// Memory for communication: blocks that lie at the same offset on every rank.
///
/// One piece of physical memory behind one range of addresses, open to the devices that have peer
/// access, so that it is exported with one descriptor and registered as one range. Symmetric blocks
/// are placed from its beginning, and where depends on nothing but the order of the symmetric
/// allocations and frees: ranks that make the same ones get the same offsets, whatever their
/// devices do meanwhile. Blocks that only this rank needs come from the other end.
///
/// Device/stream: blocks belong to a stream as those of every Allocator. A freed block may be given
/// out at once; work on its new stream waits for what used it before, and the host does not.
/// Not for streams that are being captured: allocate before the capture.
/// Move-only; after a move every member of the source throws InvalidArgument. Destroying it keeps
/// the memory until the last block is freed, and then waits for the work that uses it. Thread
/// safety: every member may be called from any thread; symmetric calls of several threads are
/// symmetric only if their order is.
class SymmetricPool {
 public:
  /// `bytes`, rounded up to whole chunks. Throws: InvalidArgument for the CPU or no bytes;
  /// NotSupported if the device has no virtual memory calls; OutOfMemoryError.
  SymmetricPool(Device device, std::size_t bytes);

  /// A symmetric block for work on `stream`, of the pool's device; 0 bytes take part in nothing.
  /// Throws: OutOfMemoryError if it does not fit below the local blocks; InvalidArgument;
  /// CaptureError. A call that throws leaves the offsets of later ones as they were.
  [[nodiscard]] Buffer allocate(std::size_t bytes, const Stream& stream);
  /// A block that moves no symmetric one. Throws: as allocate().
  [[nodiscard]] Buffer allocate_local(std::size_t bytes, const Stream& stream);
  /// Gives symmetric blocks; Block::allocator of all blocks. It lives as long as the pool and its
  /// blocks do.
  [[nodiscard]] Allocator& allocator() const;

  /// Where `block` begins, in bytes from base(). Throws: InvalidArgument for a block of another
  /// allocator.
  [[nodiscard]] std::size_t offset_of(const Block& block) const;
  [[nodiscard]] std::size_t offset_of(const Buffer& buffer) const {
    return offset_of(buffer.block());
  }
  /// The address at `offset`. Throws: InvalidArgument for an offset past the end.
  [[nodiscard]] void* data_at(std::size_t offset) const;
  [[nodiscard]] void* base() const;
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] Device device() const;

  /// A file descriptor (close-on-exec, owned by the caller) that names all of the memory, bytes()
  /// of it from base() on, in any process of this machine: for Driver::import_chunk. It keeps the
  /// memory alive. Throws: CudaError.
  [[nodiscard]] int export_descriptor() const;

  /// Blocks that are live, of both kinds.
  [[nodiscard]] std::size_t use_count() const;
  [[nodiscard]] SymmetricUsage usage() const;
  /// A digest of all symmetric allocations and frees so far: ranks can compare it to find out that
  /// they have parted.
  [[nodiscard]] std::uint64_t sequence() const;

 private:
  struct AbandonHeap {
    void operator()(SymmetricHeap* heap) const noexcept;
  };

  gantry::detail::CheckedPtr<std::unique_ptr<SymmetricHeap, AbandonHeap>> heap_;
};

}  // namespace gantry::memory
