#pragma once

#include <array>
#include <cstdint>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/p2p/registrations.hpp"
#include "collectives/protocol/plan.hpp"
#include "collectives/slices.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// The most blocks that reduce a slice of registered memory.
int most_zero_copy_blocks(std::int64_t slice_bytes);

// Operations on registered memory; see Note [Zero-copy].
class RegisteredOperations {
 public:
  RegisteredOperations(const protocol::Group& group, const Registrations& registrations,
                       int device);
  RegisteredOperations(const RegisteredOperations&) = delete;
  RegisteredOperations& operator=(const RegisteredOperations&) = delete;

  // The window offset of the tensor of `call` that must be registered: the output of all_gather and
  // all_to_all, else the input. 0 if the operation must use staging.
  std::uint64_t window_offset_of(const CollectiveCall& call) const;

  // Enqueues `call`, whose window offset is set, as one kernel that reads and writes the tensors of
  // all ranks: all_reduce, reduce, broadcast, reduce_scatter.
  void run_zero_copy(const CollectiveCall& call, int blocks, const Stream& stream);
  // Enqueues `call` with copy engines: all_reduce, broadcast, all_gather, all_to_all.
  void run_copy(const CollectiveCall& call, const Stream& stream);

 private:
  // A side stream for one copy of an operation.
  class Side {
   public:
    explicit Side(int device);
    ~Side();
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    // Copies `run` after the work that is enqueued on `stream`.
    void copy(const CopyRegion& run, const Stream& stream);
    // Makes `stream` wait for the copy.
    void join(const Stream& stream);
    // The capture that the side takes part in; 0: none.
    std::uint64_t capture_id() const { return driver().capture_id(stream_); }

   private:
    NativeStream stream_;
    NativeEvent forked_;
    NativeEvent joined_;
  };

  protocol::ZeroCopy zero_copy(const CollectiveCall& call, std::uint32_t barrier) const;
  protocol::ZeroCopy begin_reduction(const CollectiveCall& call, const ReducedSlices& slices) const;
  // Enqueues the copies of run_copy() between its two kernels, to one peer after the other. Ranks
  // begin with different peers, so that no link serves all at once.
  void send_slices(const CollectiveCall& call, const Stream& stream);
  void send_array(const CollectiveCall& call, std::int64_t begin, std::int64_t bytes,
                  const Stream& stream);

  // The side stream for this rank's own slice of a call on `stream`; nullptr: none is free. A
  // stream in a capture can do nothing else until the capture ends. Calls outside captures
  // therefore have their own side stream, and each capture has one of a few. None is created here:
  // that may wait for the device, where a kernel may wait for the caller.
  Side* side_for(const Stream& stream);

  const protocol::Group& group_;
  const Registrations& registrations_;
  Side side_;
  std::array<Side, 2> captured_sides_;
};

}  // namespace gantry
