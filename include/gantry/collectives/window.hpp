#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/export.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>
#include <gantry/tensor/uses.hpp>

namespace gantry {

class PeerView;

/// One tensor per rank, open to the kernels of all ranks, and signals between the ranks.
/// Communicator::window() makes it.
///
/// A cheap handle: copies refer to the same window. It holds the tensor's memory and the group.
/// Each rank has a signal pad: an i64 tensor [kChannels, size()], whose word [channel, source] is 0
/// or 1. A signal from `source` waits until the word is 0, and writes 1. The wait for this signal
/// waits until the word is 1, and writes 0. Kernels of the program may do the same, by 8-byte
/// accesses in release and acquire order at system scope. Their launches name the window by
/// `uses(window)`, see uses.hpp.
///
/// Device/stream: barrier(), put_signal() and wait_signal() enqueue a kernel on the stream; the
/// host does not wait. All other members are host calls that touch no device. Writes before a
/// signal are visible to work after the wait for it. Writes before a barrier are visible to work
/// after it. Every rank keeps its window until the other ranks' work on its memory is complete: a
/// barrier before the end suffices. The program orders its work on other streams before the end of
/// the window.
///
/// Failure: a wait ends when a rank of the group is lost, or GANTRY_COLL_TIMEOUT seconds after its
/// start. It waits for a signal, or for the peer to take the previous one. The next synchronizing
/// call of the device throws PeerLostError or TimeoutError, which names the rank. The group is
/// broken then, and so are its other windows. Calls of a captured graph have no deadline.
/// Thread safety: any thread; calls for one channel and pair of ranks, one at a time.
/// @code
/// const Communicator world = Communicator::world();
/// const Window window = world.window(ones({4}, world.device()));
/// const Tensor theirs = window.peer((world.rank() + 1) % world.size());
/// window.barrier();
/// @endcode
/// @since 0.3
class GANTRY_API Window {
 public:
  /// Number of channels of the signal pads.
  static constexpr int kChannels = 64;

  /// Undefined: names no window. Every member but defined() throws InvalidArgument.
  Window() = default;
  /// True unless default-constructed or moved-from.
  [[nodiscard]] bool defined() const noexcept { return state_ != nullptr; }

  /// Rank of this process in the window's group.
  [[nodiscard]] int rank() const;
  /// Number of ranks.
  [[nodiscard]] int size() const;
  /// The tensor of `rank`, with the shape and layout of this rank's tensor.
  ///
  /// Device/stream: its device() is this rank's device. Operations on it run on this rank's streams
  /// and reach the memory over the link. Aliasing: no copy. The memory stays mapped as long as a
  /// tensor refers to it.
  /// Throws: InvalidArgument for a rank that the group does not have.
  [[nodiscard]] Tensor peer(int rank) const;
  /// The address of every rank's tensor for kernels of this rank's device, in rank order. Valid as
  /// long as a handle of the window exists.
  [[nodiscard]] const std::vector<void*>& peer_pointers() const;
  /// The memory of all ranks and signals between them, for kernels of the program; see channel.hpp.
  [[nodiscard]] PeerView view() const;
  /// This rank's pad. i64, [kChannels, size()], contiguous.
  [[nodiscard]] Tensor signal_pad() const;
  /// The pad of `rank`, as peer(). Throws: InvalidArgument for a rank that the group does not have.
  [[nodiscard]] Tensor signal_pad(int rank) const;

  /// Orders work of all ranks: later work on each rank's `stream` runs after earlier work on every
  /// rank's `stream`. Collective, as Communicator::barrier(). Throws: InvalidArgument for a stream
  /// of another device; as an operation of the group.
  void barrier(const Stream& stream) const;
  /// As above, on the current stream of this rank's device.
  void barrier() const;
  /// Signals `rank` on `channel`, after the earlier work of `stream`. Later work of the stream
  /// waits until the word of the pad is 0. Throws: InvalidArgument for this rank or one that the
  /// group does not have. The same for a channel out of range, and for a stream of another device.
  /// PeerLostError or TimeoutError if the group is broken.
  void put_signal(int rank, const Stream& stream, int channel = 0) const;
  /// As above, on the current stream of this rank's device.
  void put_signal(int rank, int channel = 0) const;
  /// Makes the later work of `stream` wait for a signal of `rank` on `channel`, and clears the
  /// signal.
  /// Throws: as put_signal().
  void wait_signal(int rank, const Stream& stream, int channel = 0) const;
  /// As above, on the current stream of this rank's device.
  void wait_signal(int rank, int channel = 0) const;

 private:
  friend class Communicator;
  friend GANTRY_API std::shared_ptr<const detail::PeerUse> peer_use(const Window& window);
  class GANTRY_LOCAL State;
  explicit Window(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Throws: InvalidArgument that names `member` if there is no window.
  State& state(std::string_view member) const;

  std::shared_ptr<State> state_;
};

/// The memory of all ranks in a window, as uses() takes it. Throws: InvalidArgument for an
/// undefined window.
/// @since 0.3
GANTRY_API std::shared_ptr<const detail::PeerUse> peer_use(const Window& window);

}  // namespace gantry
