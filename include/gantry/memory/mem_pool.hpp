#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::memory {

struct Pool;

/// How a MemPool treats memory.
struct MemPoolOptions {
  bool use_on_oom = false;  ///< the rest of the device may take its free memory rather than run out
  bool no_split = false;    ///< a block is never cut: it serves only requests that fit it
};

/// Blocks of one device that share no memory with anybody else's: for memory that is parked, for
/// keeping what lives long apart.
///
/// A stream that is being captured gets memory of its capture instead (docs/memory.md).
///
/// Its blocks are the caching allocator's in every other respect, and count in its statistics.
/// Move-only. Destroying it gives its unused memory back; live blocks stay valid until they are
/// freed. Those of a parked pool get memory again; if there is not enough for them, the log says
/// so, and nothing but freeing them is allowed. After a move every member of the source throws
/// InvalidArgument. Thread safety: every member may be called from any thread.
class MemPool {
 public:
  /// Throws: InvalidArgument for the CPU; NotSupported if the device's allocator has no pools
  /// (set_allocator, backend async).
  explicit MemPool(Device device = Device::cuda(), MemPoolOptions options = {});

  /// `bytes` for work on `stream`, of the pool's device. Throws: OutOfMemoryError; InvalidArgument
  /// while the pool is parked.
  [[nodiscard]] Buffer allocate(std::size_t bytes, const Stream& stream);

  /// Number that no other pool of its device has at the same time, from 1 on.
  [[nodiscard]] std::uint64_t id() const;
  [[nodiscard]] Device device() const;
  /// Blocks that are live.
  [[nodiscard]] std::size_t use_count() const;

  /// Gives the physical memory of all blocks to the driver, also of live ones: they keep their
  /// addresses, and lose their contents. Waits for the device. Until unpark(), using them is an
  /// error that the device reports. What is free is forgotten: it does not come back.
  /// Throws: NotSupported with backend native; InvalidArgument if another process shares a block;
  /// CudaError, after which the pool has memory behind all addresses again and can be used, but
  /// contents may be lost. Only if that memory cannot be had is it parked then: see is_parked().
  void park();
  /// Puts memory behind the addresses again; the contents are undefined.
  /// Throws: OutOfMemoryError, CudaError; the pool is still parked then, and holds no memory that
  /// the driver takes.
  void unpark();
  [[nodiscard]] bool is_parked() const;

 private:
  friend class MemPoolGuard;
  struct DestroyPool {
    void operator()(Pool* pool) const noexcept;
  };

  gantry::detail::CheckedPtr<std::unique_ptr<Pool, DestroyPool>> pool_;
};

/// Makes the calling thread's allocations on the pool's device come from the pool, for a scope.
/// Guards nest; the inner one counts.
class MemPoolGuard {
 public:
  explicit MemPoolGuard(MemPool& pool);
  ~MemPoolGuard();
  MemPoolGuard(const MemPoolGuard&) = delete;
  MemPoolGuard& operator=(const MemPoolGuard&) = delete;

 private:
  int device_;
  Pool* before_;
};

}  // namespace gantry::memory
