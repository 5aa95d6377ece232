#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <gantry/device/device.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/storage.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/descriptor.hpp"

namespace gantry {

class ControlSegment;

// A rank's view of the group of a transport.
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
  // A further transfer of the call before it, which had a list of tensors. See Note [Lists].
  bool continues = false;

  bool is_uneven() const { return !send_counts.empty(); }
};

// Note [Lists]
// A list of tensors takes one transfer per dtype. All of them are one call: they have its number
// and its operands, and the flight recorder has the first one. If another rank gives another list,
// it may make another number of transfers. All ranks detect the mismatch in the first one, and none
// makes a further one. On the host the first transfer throws. Kernels of further transfers are
// enqueued already, and do nothing if the one before them reported a mismatch: see
// Group::continues. So all ranks stay in step.

// The remedy in the error of a send that timed out.
inline constexpr const char* kSendRemedy =
    "; ranks that send to each other before they receive need send_recv(), group() or two streams";

// Transfers contiguous arrays between the ranks of a communicator, in stream order. Every rank
// makes the same calls, except for send and recv. Throws: PeerLostError, TimeoutError; NotSupported
// if supports() is false.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // Depends only on the descriptor, so that all ranks agree.
  virtual bool supports(const Descriptor& what) const = 0;
  virtual void run(const CollectiveCall& call, const Stream& stream) = 0;
  // Runs sends and receives concurrently: at least one, and none to this rank. Those between the
  // same ranks keep their order. See Note [Groups of messages].
  virtual void run_together(std::span<const CollectiveCall> messages, const Stream& stream) = 0;
  // Takes the event that run() recorded after the last call; nullptr if there is none. It must not
  // be recorded again.
  virtual std::shared_ptr<Event> take_end() { return nullptr; }
  // Opens memory on all ranks, so that operations can read it in place. Collective; blocks the
  // host. Does nothing on transports without support. Throws: InvalidArgument; the error of this
  // rank.
  virtual void add_memory(const Storage&) {}
  // Closes the memory after the enqueued operations and the work of `stream`.
  virtual void remove_memory(const Storage&, const Stream&) {}
  // Why the device memory between the ranks must stay, on this rank; empty: it need not. Requires
  // that all ranks have called it, or will, and that their devices are idle.
  virtual std::string suspension_problem() const { return {}; }
  // Gives the device memory back. Collective. No operation until resume(). Throws: PeerLostError.
  virtual void suspend() {}
  // Takes it again. Collective. Throws: OutOfMemoryError on all ranks, which stay suspended.
  virtual void resume() {}
  // Makes pending and later calls of every rank throw PeerLostError, if the group has no control
  // segment for it. Any thread; does not block.
  virtual void abort() noexcept {}
  // Waits for the end of abort(), with a timeout.
  virtual void await_abort() noexcept {}
  // Throws PeerLostError after abort(), if the group has no control segment for it.
  virtual void require_intact() const {}
  // False if operations of a lost group may end without a result and without an error.
  virtual bool reports_losses() const { return true; }
  // Closes the other ranks' memory, and signals ranks of other machines that this one leaves.
  // Requires: no operation is pending.
  virtual void close() noexcept {}
  // True while kernels that may wait for other ranks are enqueued. Queries the driver.
  virtual bool is_waiting() const { return false; }
};

class Selector;

// Makes the transport of kernels and copy engines over peer memory on one machine. Collective.
// Returns nullptr, with a warning, if a probe finds unusable peer memory. Operations do not block
// the host. Throws: OutOfMemoryError, CudaError; NotSupported for a device that is hidden from this
// process; PeerLostError.
std::unique_ptr<Transport> make_p2p_transport(const Membership& membership, Bootstrap& bootstrap,
                                              ControlSegment& control, const Selector& selector);

// Why NCCL cannot be used: this build lacks it, or its library cannot be loaded. Empty if it can.
// The first call loads the library. See Communicator::Impl::agree_on_nccl().
const std::string& nccl_problem();
inline bool has_nccl() { return nccl_problem().empty(); }
// Makes the NCCL transport. `control` may be null if ranks are on several machines. If it
// `reports_progress`, the control segment has the device's progress, so calls have deadlines. It
// must not do so beside p2p, whose kernels write the same words. Collective. Throws: NotSupported
// without NCCL; NcclError; TimeoutError for late ranks; PeerLostError.
std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlSegment* control, bool reports_progress,
                                               std::chrono::milliseconds timeout);

// Makes the host transport: host memory, and messages between hosts over TCP or MPI. Collective.
// `in_one_process`: all ranks are in this process, so that one thread may call several of them.
std::unique_ptr<Transport> make_host_transport(const Membership& membership, Bootstrap& bootstrap,
                                               bool in_one_process);

}  // namespace gantry
