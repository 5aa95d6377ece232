// What the backend "async" knows about one device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/memory/stats.hpp>

#include "streams/capture.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// A stream that a block belongs to, or was recorded on.
struct AsyncUse {
  NativeStream stream;
  StreamClock* foreign = nullptr;  ///< its clock, if it may be destroyed after the free
  std::uint64_t sequence = 0;      ///< of an external stream, taken at the free

  [[nodiscard]] static AsyncUse of(const Stream& stream);
};

/// A block of the driver's pool.
struct AsyncBlock {
  void* data = nullptr;
  std::size_t requested = 0;
  std::vector<AsyncUse> uses;  ///< the stream that it was allocated on comes first
  std::vector<std::shared_ptr<const Capture>> captures;  ///< freed: whose graphs may use it
  bool live = false;
  AsyncBlock* next = nullptr;  ///< in the list of spare or deferred blocks
};

/// Note [Frees of recorded blocks]
/// A block that other streams use is freed on a stream of this pool's own, which waits for all of
/// them: its own stream would have to stand still until they are done. The driver reuses it when
/// that free is reached. A free that cannot be ordered now, because a stream is being captured or
/// the driver refuses, is made up for at the next allocation; until then the memory is kept.
///
/// Note [Foreign streams of blocks]
/// An external stream may be destroyed once the free has returned. So the free takes a sequence
/// number of its clock, and a deferred free waits for that number and never touches the stream.
/// No event can be recorded on a captured or destroyed stream, or on another thread's per-thread
/// default stream. Such memory is kept until the device is synchronized: by out-of-memory recovery,
/// or by empty_cache().
///
/// Note [Frees in captures]
/// A stream that is being captured gets no memory here: a pool of the driver would make the
/// allocation a node of the graph, which no tensor outlives. (AsyncAllocator has another source for
/// captures.) A block that is freed while one of its streams is captured was probably used by the
/// capture, so its free waits until nothing can run the graph any more.
///
/// Note [Memory in passing]
/// A thread that frees deferred blocks has taken them from the list, and a request under way counts
/// against the limit before the driver answers. Another thread that finds too little meanwhile must
/// not report a shortage: it waits for them, not for ever, because they may wait for the device and
/// the device for that thread, and tries again.
///
/// Thread safety: every member may be called from any thread; no lock is held over driver calls.
class AsyncPool {
 public:
  /// `release_elsewhere()` gives back what the owner has cached apart from this pool.
  /// Throws: NotSupported if the device has no memory pools.
  AsyncPool(int device, double fraction, std::function<void()> release_elsewhere);
  ~AsyncPool();
  AsyncPool(const AsyncPool&) = delete;
  AsyncPool& operator=(const AsyncPool&) = delete;

  /// On a stream that is not being captured. Throws: OutOfMemoryError.
  [[nodiscard]] AsyncBlock& allocate(std::size_t bytes, const Stream& stream);
  void deallocate(AsyncBlock& block) noexcept;
  void record_stream(AsyncBlock& block, const Stream& stream);
  /// Waits for the device, then gives back what is not in use.
  void empty_cache();

  [[nodiscard]] Stats stats();
  void reset_peak_stats();
  void set_fraction(double fraction);

 private:
  [[nodiscard]] AsyncBlock& take_blank();
  void give_blank(AsyncBlock& block) noexcept;
  [[nodiscard]] void* allocate_slow(std::size_t bytes, NativeStream stream);
  [[nodiscard]] void* try_to_find(std::size_t bytes, NativeStream stream);
  /// True if other threads freed memory or withdrew requests since there were `before` passings;
  /// waits for those under way.
  [[nodiscard]] bool await_others(std::uint64_t before);
  /// Memory became available; the lock is held.
  void note_passing() noexcept;
  [[nodiscard]] void* ask_driver(std::size_t bytes, NativeStream stream);
  /// Notes that `bytes` are asked for, so that others keep within the limit meanwhile; false if it
  /// does not allow them.
  [[nodiscard]] bool promise(std::size_t bytes);
  void cancel_reservation(std::size_t bytes) noexcept;
  [[noreturn]] void throw_oom(std::size_t bytes);
  void note_captures(AsyncBlock& block) noexcept;
  /// Frees a block that only its own stream uses, while that lives; false if it could not.
  [[nodiscard]] bool free_on_own_stream(AsyncBlock& block) noexcept;
  /// Frees behind all streams of a block whose sequence numbers are taken; throws without having
  /// freed.
  // `now`: in the caller's free, not in a later attempt.
  void free_in_order(AsyncBlock& block, bool now);
  [[nodiscard]] bool try_to_free(AsyncBlock& block, bool now) noexcept;
  void note_freed(AsyncBlock& block) noexcept;
  void retry_deferred() noexcept;
  /// Blocks the host until the devices are done whose foreign streams deferred blocks wait for,
  /// then frees these. False if there are none. Throws: CudaError.
  bool settle_deferred();
  [[nodiscard]] NativeStream free_stream();

  const int device_;
  const std::size_t total_;
  const std::function<void()> release_elsewhere_;
  std::atomic<std::size_t> limit_;

  std::mutex mutex_;
  std::deque<AsyncBlock> blocks_;
  AsyncBlock* blank_ = nullptr;
  AsyncBlock* deferred_ = nullptr;  ///< freed by their owners, not by the driver
  std::optional<NativeStream> free_stream_;
  Stats stats_;
  std::size_t reserved_ = 0;  ///< of requests under way, which the statistics do not have yet

  // See Note [Memory in passing].
  std::condition_variable passed_;
  std::uint64_t passings_ = 0;  ///< that ended
  int under_way_ = 0;           ///< threads that free deferred blocks, and requests
};

}  // namespace gantry::memory
