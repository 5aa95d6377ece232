#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <gantry/device/device.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/storage.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/descriptor.hpp"

namespace gantry {

class ControlSegment;

// Who takes part in a transport.
struct Membership {
  int rank = 0;
  int size = 1;
  Device device;
};

// One operation with its arrays: contiguous, on the membership's device, checked by the
// communicator. `count` is the descriptor's.
//
//   kind            in                      out
//   all_reduce      count                   count (may be in)
//   reduce          count                   count on root (may be in), else null
//   broadcast       count on root           count on every rank (root: may be in)
//   all_gather      count                   size·count
//   reduce_scatter  size·count              count
//   gather          count                   size·count on root, else null
//   scatter         size·count on root      count
//   all_to_all      size·count, or blocks of send_counts     likewise recv_counts
//   send, recv      count (send)            count (recv)
//   barrier         null                    null
struct CollectiveCall {
  Descriptor what;
  const void* in = nullptr;
  void* out = nullptr;
  // Elements to and from each rank, in rank order without gaps: all_to_all with blocks of unequal
  // size, else empty.
  std::span<const std::int64_t> send_counts = {};
  std::span<const std::int64_t> recv_counts = {};

  bool is_uneven() const { return !send_counts.empty(); }
};

// What the text of a send that waited in vain ends with.
inline constexpr const char* kSendRemedy =
    "; ranks that send to each other before they receive need send_recv(), group() or two streams";

// Carries contiguous arrays between the ranks of a communicator, in stream order. Every rank makes
// the same calls, but for send and recv.
// Throws: PeerLostError, TimeoutError; NotSupported for what supports() denies.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // Depends only on the descriptor, so that all ranks agree.
  virtual bool supports(const Descriptor& what) const = 0;
  virtual void run(const CollectiveCall& call, const Stream& stream) = 0;
  // Runs sends and receives side by side, at least one and none to this rank: see Note [Groups of
  // messages]. Those between the same ranks keep their order.
  virtual void run_together(std::span<const CollectiveCall> messages, const Stream& stream) = 0;
  // The event that run() recorded behind the last call; nullptr if it recorded none. To be taken
  // once. Nobody may record it on another stream.
  virtual std::shared_ptr<Event> take_end() { return nullptr; }
  // Opens memory on all ranks, so that operations may read it in place; collective, blocks the
  // host. Transports that cannot do nothing. Throws: InvalidArgument, and what kept this rank.
  virtual void add_memory(const Storage&) {}
  // Gives it up when what is enqueued, and what `stream` has, is done.
  virtual void remove_memory(const Storage&, const Stream&) {}
  // Makes pending and later calls of every rank throw PeerLostError, where the group's control
  // block does not. Any thread; waits for nothing.
  virtual void abort() noexcept {}
  // Waits a while until what abort() began is done.
  virtual void await_abort() noexcept {}
  // Throws PeerLostError after abort(), where the group's control segment does not.
  virtual void require_intact() const {}
  // False if operations of a group that was lost may end without a result and without a word.
  virtual bool tells_losses() const { return true; }
  // Closes the other ranks' memory, and says to ranks of other machines that this one leaves; its
  // device is done, and nothing runs here any more.
  virtual void close() noexcept {}
  // True while kernels that may wait for other ranks are enqueued. Asks the driver.
  virtual bool is_waiting() const { return false; }
};

class Selector;

// Kernels and copy engines over memory that the ranks of one machine opened from each other.
// Collective; nullptr, with a warning, if a probe finds memory that cannot be used. The host never
// waits for other ranks. Throws: OutOfMemoryError, CudaError; NotSupported for a device that is
// hidden from this process; PeerLostError.
std::unique_ptr<Transport> make_p2p_transport(const Membership& membership, Bootstrap& bootstrap,
                                              ControlSegment& control, const Selector& selector);

// True if this build holds NCCL.
bool has_nccl();
// NCCL; `control` may be null when ranks are on several machines. If it `tells`, the block knows
// what the device is at, so that calls have deadlines: not beside p2p, whose kernels write the same
// words, and which carries all calls that differ between ranks unseen. Collective.
// Throws: NotSupported in a build without NCCL; NcclError; TimeoutError for ranks that do not come;
// PeerLostError.
std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlSegment* control, bool tells,
                                               std::chrono::milliseconds timeout);

// Host memory and messages between hosts (MPI, or the bootstrap's store where there is none).
// Collective. The host takes part in every operation, in stream order.
std::unique_ptr<Transport> make_host_transport(const Membership& membership, Bootstrap& bootstrap);

}  // namespace gantry
