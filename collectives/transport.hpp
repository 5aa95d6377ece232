#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <gantry/device/device.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/storage.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/call.hpp"

namespace gantry {

class ControlSegment;

// A rank's view of the group of a transport.
struct Membership {
  int rank = 0;
  int size = 1;
  Device device;
};

// The end of a call in its stream.
struct End {
  // Recorded behind the call, and not to be recorded again; null: none is.
  std::shared_ptr<Event> event = {};
  // False if a call of a lost group may end without a result and without an error.
  bool reports_losses = true;
};

// The remedy in the error of a send that timed out.
inline constexpr const char* kSendRemedy =
    "; ranks that send to each other before they receive need send_recv(), group() or two streams";

// Transfers contiguous arrays between the ranks of a communicator, in stream order. Every rank
// makes the same calls, except for send and recv. Throws: PeerLostError, TimeoutError.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  virtual End run(const ResolvedCall& call, const Stream& stream) = 0;
  // Runs sends and receives concurrently: at least one, and none to this rank. Those between the
  // same ranks keep their order. See Note [Groups of messages].
  virtual End run_together(std::span<const ResolvedCall> messages, const Stream& stream) = 0;
  // Opens memory on all ranks, so that operations can read it in place. Collective; blocks the
  // host. Does nothing on transports without support. Throws: InvalidArgument; the error of this
  // rank.
  virtual void add_memory(const Storage&) {}
  // Closes the memory after the enqueued operations and the work of `stream`.
  virtual void remove_memory(const Storage&, const Stream&) {}
  // Descriptor::window_offset of a call whose memory was added; else 0.
  virtual std::uint64_t window_offset_of(const CollectiveCall&) const { return 0; }
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
  // Closes the other ranks' memory, and signals ranks of other machines that this one leaves.
  // Requires: no operation is pending.
  virtual void close() noexcept {}
  // True while kernels that may wait for other ranks are enqueued. Queries the driver.
  virtual bool is_waiting() const { return false; }
  // The asynchronous error of enqueued work; empty: none is known. Any thread.
  virtual std::string asynchronous_error() const { return {}; }
  // True if NCCL moves the data of collectives, at least between machines.
  virtual bool uses_nccl() const { return false; }
};

// Makes the transport of kernels and copy engines over peer memory on one machine. Forbids LL128 in
// the selector if the links do not keep the order of stores. `shares_addresses`: all ranks are in
// one process, and operations may use their arrays in place. Collective.
// Returns nullptr, with a warning, if a probe finds unusable peer memory. Operations do not block
// the host. Throws: OutOfMemoryError, CudaError; NotSupported for a device that is hidden from this
// process; PeerLostError.
std::unique_ptr<Transport> make_p2p_transport(const Membership& membership, Bootstrap& bootstrap,
                                              ControlSegment& control, Selector& selector,
                                              bool shares_addresses = false);

// Resolves a call of `ranks` ranks that reach each other's memory, through `peers`. The result has
// no `via` if the selector chooses NCCL, which it does not `without_nccl`.
ResolvedCall resolve_over_peers(const CollectiveCall& call, int ranks, const Selector& selector,
                                Transport& peers, bool without_nccl = false);

// Why NCCL cannot be used: this build lacks it, or its library cannot be loaded. Empty if it can.
// The first call loads the library. See TransportSet::agree_on_nccl().
const std::string& nccl_problem();
inline bool has_nccl() { return nccl_problem().empty(); }
// True if NCCL may take the devices of this process. Simulated devices need a library of their own,
// which GANTRY_NCCL_LIBRARY names.
bool nccl_takes_this_platform();
// Makes the NCCL transport. `control` may be null if ranks are on several machines. If it
// `reports_progress`, the control segment has the device's progress, so calls have deadlines. It
// must not do so beside p2p, whose kernels write the same words. Collective. Throws: NotSupported
// without NCCL; NcclError; TimeoutError for late ranks; PeerLostError.
std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlSegment* control, bool reports_progress,
                                               GroupTimeout timeout);

// Makes an NCCL transport of collectives whose callers have compared them, and watch for ranks that
// are lost or late. `check_start` is polled while NCCL starts, and throws to give up. Collective.
// `bootstrap` is only used here. Throws: as make_nccl_transport(), and as `check_start`.
std::unique_ptr<Transport> make_watched_nccl_transport(const Membership& membership,
                                                       Bootstrap& bootstrap,
                                                       const std::function<void()>& check_start);

// Makes the host transport: host memory, and messages between hosts over TCP or MPI. Collective.
// `in_one_process`: all ranks are in this process, so that one thread may call several of them.
std::unique_ptr<Transport> make_host_transport(const Membership& membership, Bootstrap& bootstrap,
                                               bool in_one_process, GroupTimeout timeout);

}  // namespace gantry
