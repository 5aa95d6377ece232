#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/export.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// A tensor of every rank that the kernels of all ranks read and write, and signals between them:
/// the result of Communicator::window().
///
/// A cheap handle: copies refer to the same window. It holds the tensor's memory and the group.
/// Signals pass through pads: each rank has an i64 tensor of shape [channels, size()], whose word
/// [channel, source] is 0 or 1. A signal of `source` waits until the word is 0 and writes 1; the
/// wait for it waits until the word is 1 and writes 0. Kernels of the program may do the same, with
/// accesses of 8 bytes, release and acquire order, and system scope.
///
/// Device/stream: all members but barrier(), put_signal() and wait_signal() are host calls that
/// touch no device. Those three enqueue a kernel on the stream; the host does not wait. Writes that
/// are enqueued before a signal, or before a barrier, are there for work after the wait. Every rank
/// keeps its window until the others' work on its memory is done: a barrier before the end
/// suffices. Work on streams other than those of the three calls is the program's to order before
/// the end of the window.
///
/// Failure: a wait ends when a rank of the group is lost. A signal that does not come or is not
/// taken within GANTRY_COLL_TIMEOUT is a TimeoutError that names the rank, and breaks the group.
/// In a graph capture there is no deadline.
/// Thread safety: any thread; calls for one channel and pair of ranks, one at a time.
class GANTRY_API Window {
 public:
  /// Channels of the signal pads.
  static constexpr int kChannels = 64;

  /// Undefined: names no window. Every member but defined() throws InvalidArgument.
  Window() = default;
  /// True unless default-constructed or moved-from.
  [[nodiscard]] bool defined() const noexcept { return state_ != nullptr; }

  /// Rank of this process in the window's group.
  [[nodiscard]] int rank() const;
  /// Number of ranks.
  [[nodiscard]] int size() const;
  /// The tensor of `rank`, of the shape and layout of this rank's.
  ///
  /// Device/stream: its device is this rank's, so operations run on this rank's streams and reach
  /// the memory over the link. Aliasing: no copy. Its memory stays mapped while it lives.
  /// Throws: InvalidArgument for a rank that the group does not have.
  [[nodiscard]] Tensor peer(int rank) const;
  /// The address of every rank's tensor for kernels of this rank's device, in rank order.
  [[nodiscard]] const std::vector<void*>& peer_pointers() const;
  /// This rank's pad. i64, [kChannels, size()], contiguous.
  [[nodiscard]] Tensor signal_pad() const;
  /// The pad of `rank`, as peer(). Throws: InvalidArgument for a rank that the group does not have.
  [[nodiscard]] Tensor signal_pad(int rank) const;

  /// Work that is enqueued later on any rank runs after all work that is enqueued earlier on every
  /// rank's `stream`. Collective, as Communicator::barrier(). Throws: InvalidArgument for a stream
  /// of another device; as an operation of the group.
  void barrier(const Stream& stream) const;
  /// As above, on the current stream of this rank's device.
  void barrier() const;
  /// Signals `rank` on `channel`, after the earlier work of `stream`. Throws: InvalidArgument for
  /// this rank or one that the group does not have, a channel out of range, or a stream of another
  /// device; PeerLostError or TimeoutError if the group is broken.
  void put_signal(int rank, const Stream& stream, int channel = 0) const;
  /// As above, on the current stream of this rank's device.
  void put_signal(int rank, int channel = 0) const;
  /// Makes the later work of `stream` wait for a signal of `rank` on `channel`, and takes it.
  /// Throws: as put_signal().
  void wait_signal(int rank, const Stream& stream, int channel = 0) const;
  /// As above, on the current stream of this rank's device.
  void wait_signal(int rank, int channel = 0) const;

 private:
  friend class Communicator;
  class GANTRY_LOCAL State;
  explicit Window(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Throws: InvalidArgument that names `member` if there is no window.
  State& state(std::string_view member) const;

  std::shared_ptr<State> state_;
};

}  // namespace gantry
