// The frees that a device's memory pool was given, of all allocators that share it.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <gantry/extend/driver.hpp>

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
  [[nodiscard]] NativeStream stream();
  /// What the pool's own stream has waited for.
  [[nodiscard]] VectorClock& order() noexcept { return order_; }

  /// Notes a free that the caller has put on the stream of `clock`, which exists.
  void note(StreamClock& clock) noexcept;
  /// Asks the driver how far the streams are. Waits for nothing, and throws no error of a stream.
  void look() noexcept;
  /// True if a free may not be reached.
  [[nodiscard]] bool has_pending() noexcept;
  /// Waits for the frees of one stream. False if there are none for which the host can `wait`.
  /// Throws: CudaError, IndexError.
  [[nodiscard]] bool wait_for_some(HostWait wait);
  /// Waits for the frees of every stream that can be waited for. Later ones are left out, since
  /// waiting for them might never end. Throws: CudaError, IndexError.
  void wait_for_all();

 private:
  explicit PoolFrees(int device) : device_(device) {}

  [[nodiscard]] std::optional<NativeStream> made_stream() const;
  [[nodiscard]] std::vector<StreamUse> pending();
  /// Waits until the pool's own stream has no work. False if it has none. Throws: CudaError.
  [[nodiscard]] bool wait_for_stream();

  const int device_;
  VectorClock order_;  ///< needs no lock
  mutable std::mutex mutex_;
  std::optional<NativeStream> stream_;
  std::vector<StreamUse> last_;  ///< of each stream; those that are known to be reached may be gone
};

}  // namespace gantry::memory
