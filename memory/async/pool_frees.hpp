// The frees that a device's memory pool was given, of all allocators that share it.
#pragma once

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "core/assert.hpp"
#include "device/idle_stream.hpp"
#include "memory/blocks/heap_block.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

// Note [Waits for frees]
// The driver's pool gives freed memory to another stream, or back to the device, when the stream of
// the free has reached it. To wait for the device would tell, too. But the device may have work
// that waits for the caller's next action, and a capture forbids it: the driver would spoil the
// capture of another thread. So each stream that freed memory has the sequence number of its last
// free here, and the host waits for that number. An event behind the free tells when it is reached.
// No event can be recorded while the stream is captured. Before a capture of gantry begins, look()
// therefore records the events that are missing.

/// The frees of a device's pool that streams may not have reached, and the stream on which the
/// allocators free blocks of several streams.
///
/// Never destroyed. Thread safety: every member may be called from any thread; no lock is held over
/// driver calls.
class PoolFrees {
 public:
  /// Those of `device`, a checked index.
  [[nodiscard]] static PoolFrees& of(int device);

  /// The pool's own stream, which is never captured; made at its first use. Throws: CudaError.
  [[nodiscard]] NativeStream stream() {
    if (const auto known = made_stream()) return *known;
    const NativeStream made =
        driver().create_stream(device_, driver().priority_range(device_).least);
    {
      const std::lock_guard lock(mutex_);
      if (!stream_) return *(stream_ = made);
    }
    driver().destroy_stream(made);  // another thread was faster
    return *made_stream();
  }
  /// What the pool's own stream has waited for.
  [[nodiscard]] VectorClock& order() noexcept { return order_; }

  /// Notes a free that the caller has put on the stream of `clock`, which exists.
  void note(StreamClock& clock) noexcept {
    GANTRY_ASSERT(clock.device() == device_, "a pool notes a free on a stream of another device");
    const std::uint64_t sequence = clock.record_sequence();
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(last_, &clock, &StreamUse::clock);
    if (known != last_.end()) {
      known->sequence = std::max(known->sequence, sequence);
      return;
    }
    try {
      last_.push_back({&clock, sequence});
    } catch (const std::bad_alloc&) {
      logging::debug("a free of the memory pool is not noted: the host is out of memory");
    }
  }
  /// Asks the driver how far the streams are. Waits for nothing, and throws no error of a stream.
  void look() noexcept {
    try {
      for (const StreamUse& use : pending()) use.clock->poll(use.sequence);
    } catch (const std::bad_alloc&) {
      // The known positions stay as they were.
    }
  }
  /// True if a free may not be reached.
  [[nodiscard]] bool has_pending() noexcept {
    try {
      const auto own = made_stream();
      return !pending().empty() || (own && !is_idle(*own));
    } catch (const std::bad_alloc&) {
      return true;
    }
  }
  /// Waits for the frees of one stream. False if there are none for which the host can `wait`.
  /// Throws: CudaError, IndexError.
  [[nodiscard]] bool wait_for_some(HostWait wait) {
    look();
    for (const StreamUse& use : pending()) {
      if (use.clock->try_wait_for(use.sequence, wait)) return true;
    }
    return wait_for_stream();
  }
  /// Waits for the frees of every stream that can be waited for. Later ones are left out, since
  /// waiting for them might never end. Throws: CudaError, IndexError.
  void wait_for_all() {
    look();
    wait_for(pending());
    static_cast<void>(wait_for_stream());
  }

 private:
  explicit PoolFrees(int device) : device_(device) {}

  [[nodiscard]] std::optional<NativeStream> made_stream() const {
    const std::lock_guard lock(mutex_);
    return stream_;
  }
  [[nodiscard]] std::vector<StreamUse> pending() {
    const std::lock_guard lock(mutex_);
    std::erase_if(last_,
                  [](const StreamUse& use) { return use.sequence <= use.clock->completed(); });
    return last_;
  }
  /// Waits until the pool's own stream has no work. False if it has none. Throws: CudaError.
  [[nodiscard]] bool wait_for_stream() {
    const auto own = made_stream();
    if (!own || is_idle(*own)) return false;
    driver().synchronize_stream(*own);
    return true;
  }

  const int device_;
  VectorClock order_;  ///< needs no lock
  mutable std::mutex mutex_;
  std::optional<NativeStream> stream_;
  std::vector<StreamUse> last_;  ///< of each stream; those that are known to be reached may be gone
};

}  // namespace gantry::memory
