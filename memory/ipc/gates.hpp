// Streams that wait for the work of another process.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>

#include <gantry/device/driver.hpp>

#include "memory/ipc/gate_words.hpp"
#include "memory/ipc/peer.hpp"

namespace gantry::memory {

/// Note [Waiting for another process]
/// CUDA never signals the event of a process that was killed before it was reached, and nothing
/// ends the wait of a stream for such an event; even a helper's stream that waits in its place
/// makes every synchronization of the context hang. So no stream waits for an exporter's event. One
/// that has to waits for a word in host memory, its gate. A background thread looks at the events
/// of all closed gates, so often that they wait a sixteenth longer, but 5 us at least and 1 ms at
/// most; it opens a gate when its event is reached, or when the exporter is gone and the event is
/// not reached, which it then tells the device's IpcLosses.
///
/// Thread safety: every member may be called from any thread.
class IpcGates {
 public:
  [[nodiscard]] static IpcGates& instance();

  /// Makes later work on `stream`, which is not being captured, wait until `event`, one of `peer`
  /// opened for the stream's device, is reached or `peer` is gone.
  /// Throws: CudaError, OutOfMemoryError, std::system_error without a thread; nothing waits then.
  void hold(NativeStream stream, std::shared_ptr<IpcPeer> peer, NativeEvent event);

 private:
  struct Gate;
  using Gates = std::list<Gate>;

  IpcGates() = default;
  void start_watcher();
  void watch();
  /// Opens the gates that can be opened and takes them from the list.
  void settle(Gates& closed);
  void open(Gate& gate) noexcept;

  GateWords words_;
  std::mutex mutex_;  ///< guards what follows; not held in driver calls
  std::condition_variable added_;
  bool has_watcher_ = false;
  Gates new_;  ///< closed, and not seen by the watcher yet
};

}  // namespace gantry::memory
