#pragma once

#include <array>
#include <cstdint>

#include <gantry/device/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/p2p/registrations.hpp"
#include "collectives/protocol/plan.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Operations on registered memory; see Note [Phases].
class RegisteredOperations {
 public:
  RegisteredOperations(const protocol::Group& group, const Registrations& registrations,
                       int device);
  RegisteredOperations(const RegisteredOperations&) = delete;
  RegisteredOperations& operator=(const RegisteredOperations&) = delete;

  // Where peers would read or write the tensor of `call` that must be registered: the output of
  // all_gather and all_to_all, else the input. 0 if it cannot be done so.
  std::uint64_t place_of(const CollectiveCall& call) const;

  // Each enqueues `call`, whose place is known. By one kernel that reads and writes the ranks'
  // tensors: all_reduce, reduce, broadcast, reduce_scatter.
  void run_in_place(const CollectiveCall& call, int blocks, const Stream& stream);
  // With copy engines: all_reduce, broadcast, all_gather, all_to_all.
  void run_copy(const CollectiveCall& call, const Stream& stream);

 private:
  // How an array is divided: owners make one part each.
  struct Parts {
    std::int64_t bytes = 0;    // of the array
    std::int64_t part = 0;     // of a part, but for what the last ones lack
    std::uint32_t owners = 0;  // ranks, one bit each

    std::int64_t begin_of(int rank) const;
    std::int64_t bytes_of(int rank) const;
  };

  // A stream beside that of an operation.
  class Side {
   public:
    explicit Side(int device);
    ~Side();
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    // Copies what is there at this point of `stream`.
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

  Parts parts_of(const Descriptor& what) const;
  protocol::Phase phase(const CollectiveCall& call, std::uint32_t step) const;
  protocol::Phase fold_of(const CollectiveCall& call, const Parts& parts) const;
  // Each enqueues what a rank sends in run_copy(), between its first phase and its last: to one
  // peer after the other, each rank from the next one on, so that no link takes in all at once.
  void send_shares(const CollectiveCall& call, const Stream& stream);
  void send_array(const CollectiveCall& call, std::int64_t begin, std::int64_t bytes,
                  const Stream& stream);

  // For this rank's own share, beside those of others, of a call on `stream`; nullptr: none is
  // free. A stream that takes part in a capture can do nothing else until that ends, so calls
  // outside of captures have a side of their own, and each capture one of a few. None is made here:
  // that may wait for the device, where a kernel may wait for the caller.
  Side* side_for(const Stream& stream);

  const protocol::Group& group_;
  const Registrations& registrations_;
  Side side_;
  std::array<Side, 2> captured_sides_;
};

}  // namespace gantry
