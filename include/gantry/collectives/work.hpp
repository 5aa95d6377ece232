#pragma once

#include <chrono>
#include <memory>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// A handle of a submitted collective operation.
///
/// It may be discarded: the operation is ordered with the stream that was current at the call.
/// @code
/// const Communicator world = Communicator::world();
/// const Tensor x = ones({4}, world.device());
/// const Work work = world.all_reduce(x);
/// work.synchronize();  // the host waits; work.wait() lets the stream wait
/// @endcode
/// @since 0.1
class GANTRY_API Work {
 public:
  /// An undefined handle, without an operation: wait() and synchronize() do nothing, query() is
  /// true.
  Work() = default;
  /// True if the handle has an operation.
  [[nodiscard]] bool defined() const noexcept { return state_ != nullptr; }

  /// Makes the current stream of the operation's device wait for the operation. The host does not
  /// block. After a capture that took the operation into a graph it has no effect: replays order
  /// the operation with later work.
  /// Throws: InvalidArgument inside the group() that the operation belongs to.
  void wait() const;
  /// True if the operation is complete. Does not block. Throws: CollectiveMismatch if ranks made
  /// different calls; PeerLostError or TimeoutError if it cannot complete; CaptureError if a
  /// capture took it into a graph.
  [[nodiscard]] bool query() const;
  /// Blocks the host until the operation is complete. Throws: as query().
  void synchronize() const;
  /// Blocks the host until the operation is complete, at most `timeout`. Returns false if it is not
  /// complete then; the operation and its group go on. Throws: as query().
  [[nodiscard]] bool wait_for(std::chrono::milliseconds timeout) const;

 private:
  friend class Communicator;
  struct GANTRY_LOCAL State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace gantry
