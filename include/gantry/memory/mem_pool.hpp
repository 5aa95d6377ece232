#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/snapshot.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::memory {

struct Pool;

/// Policy of a MemPool.
/// @since 0.1
struct MemPoolOptions {
  bool use_on_oom =
      false;  ///< out-of-memory recovery of other pools may take this pool's free memory
  bool no_split = false;  ///< free blocks are not split for smaller requests
  /// Source of the pool's segments; nullptr: the driver. The pool allocates from it on the default
  /// stream of the device. Every stream must be able to use that memory at once, as with
  /// cudaMalloc. The pool keeps the allocator alive until the last segment is freed. It may forward
  /// to the device's allocator: while it is called, no MemPoolGuard of the thread is in effect.
  std::shared_ptr<Allocator> allocator = nullptr;
};

/// What release_physical() does with the contents of live blocks.
/// @since 0.3
enum class PoolBackup : std::uint8_t {
  none,  ///< they are lost
  host,  ///< restore_physical() brings them back from page-locked host memory
};

/// Options of MemPool::release_physical().
/// @since 0.3
struct ReleaseOptions {
  PoolBackup backup = PoolBackup::none;  ///< of the contents of live blocks
};

/// A private pool of the caching allocator: its blocks share no memory with other pools.
///
/// Its physical memory can be released for a while (release_physical()). It also keeps long-lived
/// blocks from fragmenting other memory. A captured stream gets memory of its capture instead
/// (docs/explanation/captures.md). Otherwise the blocks behave as those of the caching allocator,
/// and count in its statistics.
///
/// Move-only; after a move every member of the source throws InvalidArgument. The destructor
/// releases unused memory, and live blocks stay valid until they are freed. It first restores the
/// memory of live blocks. If there is not enough for that, it logs a warning, and such blocks may
/// only be freed.
/// Thread safety: every member may be called from any thread.
/// @code
/// memory::MemPool pool("cuda:0");
/// {
///   const memory::MemPoolGuard guard(pool);
///   const Tensor x = ones({1024}, "cuda:0");  // in the pool
/// }
/// pool.release_physical();
/// @endcode
/// @since 0.3
class GANTRY_API MemPool {
 public:
  /// Makes a pool on `device`, without memory.
  /// With `options.allocator`, the pool splits segments of that allocator into blocks, as backend
  /// native does. Such blocks cannot be exported to other processes, and release_physical() is not
  /// supported.
  /// Throws: InvalidArgument for the CPU; NotSupported if the device's allocator has no pools
  /// (set_allocator, backend async).
  explicit MemPool(Device device = Device::cuda(), MemPoolOptions options = {});

  /// Allocates `bytes` for work on `stream`, a stream of the pool's device, at an address that is a
  /// multiple of `alignment`.
  /// Throws, with the strong guarantee: OutOfMemoryError; InvalidArgument unless has_physical(), or
  /// unless `alignment` is a power of two.
  [[nodiscard]] Buffer allocate(const Stream& stream, std::size_t bytes,
                                std::size_t alignment = kDefaultAlignment);

  /// Identifier, from 1 on, unique among the existing pools of the device.
  [[nodiscard]] std::uint64_t id() const;
  /// The device of the pool.
  [[nodiscard]] Device device() const;
  /// Number of live blocks.
  [[nodiscard]] std::size_t use_count() const;

  /// Releases the physical memory of all blocks to the driver. Live blocks keep their addresses.
  /// Their contents are lost, or saved with `options.backup`. Waits for the device. Until
  /// restore_physical(), a kernel that uses them faults. No effect if it is released already.
  ///
  /// Throws, with the strong guarantee: NotSupported with backend native; InvalidArgument if
  /// another process shares a block; CaptureError while a stream of any device is captured;
  /// OutOfMemoryError without host memory for a backup.
  /// Throws, with the basic guarantee: CudaError. The pool maps its memory again if it can;
  /// has_physical() tells. Contents may be lost without a backup, and never with one.
  void release_physical(const ReleaseOptions& options = {});
  /// Maps physical memory at the addresses of live blocks again. Their contents are those of the
  /// backup; without one they are undefined. No effect if has_physical().
  /// Device/stream: blocks the host until a backup is copied.
  /// Throws, with the strong guarantee: OutOfMemoryError, CudaError. has_physical() stays false,
  /// and a backup is kept.
  void restore_physical();
  /// False between release_physical() and restore_physical().
  [[nodiscard]] bool has_physical() const;
  /// As memory::snapshot(*this).
  [[nodiscard]] Snapshot snapshot() const;

 private:
  friend class MemPoolGuard;
  friend GANTRY_API Snapshot snapshot(const MemPool& pool);
  struct DestroyPool {
    void operator()(Pool* pool) const noexcept;
  };

  gantry::detail::CheckedPtr<std::unique_ptr<Pool, DestroyPool>> pool_;
};

/// Takes a snapshot of the segments and blocks of one pool. It has the settings of snapshot() and
/// no events. For a pool without physical memory, its segments are address ranges.
/// Device/stream: does not wait for the device. Thread safety: any thread.
/// @since 0.3
[[nodiscard]] GANTRY_API Snapshot snapshot(const MemPool& pool);

/// A scope in which the calling thread allocates from the pool on the pool's device. Guards nest;
/// the inner one is in effect.
/// @code
/// memory::MemPool pool("cuda:0");
/// const memory::MemPoolGuard guard(pool);
/// const Tensor x = ones({1024}, "cuda:0");  // in the pool
/// @endcode
/// @since 0.1
class GANTRY_API MemPoolGuard {
 public:
  /// Makes this thread allocate from `pool`, which must exist until the end of the scope.
  explicit MemPoolGuard(MemPool& pool);
  ~MemPoolGuard();
  MemPoolGuard(const MemPoolGuard&) = delete;
  MemPoolGuard& operator=(const MemPoolGuard&) = delete;

 private:
  int device_;
  Pool* before_;
};

}  // namespace gantry::memory
