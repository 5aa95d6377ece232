#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <gantry/core/dtype.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/bootstrap.hpp"
#include "collectives/control_block.hpp"
#include "collectives/folding.hpp"

namespace gantry {

// Who takes part in a transport.
struct Membership {
  int rank = 0;
  int size = 1;
  Device device;
};

// Carries contiguous arrays between the ranks of a communicator, in stream order.
//
// Every rank makes the same calls; the communicator has checked arguments. Throws: PeerLostError,
// TimeoutError; InvalidArgument for calls that differ between ranks.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // Brings all ranks back in step after a mismatch: they may have taken different turns. The fence
  // that found it ordered every rank behind all earlier reads.
  virtual void restart() {}
  virtual void all_reduce(void* data, const Descriptor& call, const Stream& stream) = 0;
  virtual void broadcast(void* data, const Descriptor& call, const Stream& stream) = 0;
  // `call.count` elements from every rank.
  virtual void all_gather(void* out, const void* in, const Descriptor& call,
                          const Stream& stream) = 0;
  // `call.count` elements to every rank.
  virtual void reduce_scatter(void* out, const void* in, const Descriptor& call,
                              const Stream& stream) = 0;
  virtual void barrier(const Descriptor& call, const Stream& stream) = 0;
};

// Kernels and copy engines over memory and events that the ranks of one machine opened from each
// other. Collective.
std::unique_ptr<Transport> make_p2p_transport(const Membership& membership, Bootstrap& bootstrap,
                                              ControlBlock& control);

// True if this build holds NCCL.
bool has_nccl();
// NCCL; `control` may be null when ranks are on several machines. Collective.
// Throws: NotSupported in a build without NCCL; NcclError.
std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlBlock* control);
}  // namespace gantry
