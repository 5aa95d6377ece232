// Streams that wait for the work of another process.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>

#include <gantry/extend/driver.hpp>

#include "memory/ipc/host_semaphores.hpp"
#include "memory/ipc/peer.hpp"

namespace gantry::memory {

/// Note [Waiting for another process]
/// CUDA never completes the event of a process that was killed before the event. Nothing ends the
/// wait of a stream for such an event. A helper stream that waits in its place does not help: then
/// every synchronization of the context hangs. So no stream waits for an exporter's event.
/// Instead, the stream waits for a host semaphore, and a background thread polls the event. The
/// interval is a sixteenth of the time waited so far, at least 5 us and at most 1 ms.
/// The thread signals the semaphore in two cases: the event is complete, or the exporter has ended
/// and the event is not complete. The second case is also added to the device's PeerFaults.
///
/// Thread safety: every member may be called from any thread.
class StreamSemaphores {
 public:
  [[nodiscard]] static StreamSemaphores& instance();

  /// Makes later work on `stream` wait until `event` is complete or `peer` has ended. The stream
  /// is not being captured; `event` is one of `peer`, opened for the stream's device.
  /// Throws: CudaError, OutOfMemoryError, std::system_error without a thread; nothing waits then.
  void wait(NativeStream stream, std::shared_ptr<IpcPeer> peer, NativeEvent event);

 private:
  struct PendingWait;
  using PendingWaits = std::list<PendingWait>;

  StreamSemaphores() = default;
  void start_thread();
  void run();
  /// Signals the semaphores of `pending` that are due, and erases them.
  void signal_completed(PendingWaits& pending);
  void signal(PendingWait& wait) noexcept;

  HostSemaphorePool semaphores_;
  std::mutex mutex_;  ///< guards what follows; not held in driver calls
  std::condition_variable added_;
  bool has_thread_ = false;
  PendingWaits new_;  ///< not seen by the thread yet
};

}  // namespace gantry::memory
