#pragma once

#include <cstdint>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/slices.hpp"

namespace gantry {

// The slices that one rank sends to and receives from every rank, itself included.
struct HostPlan {
  std::vector<ByteSlice> sends;     // slices of `in`
  std::vector<ByteSlice> receives;  // slices of `out`; all the same one if they are reduced
  bool sends_one = false;           // every rank is sent the same bytes
  bool reduces = false;

  // The ends of the last slice sent, and of the last one received.
  std::int64_t in_bytes() const;
  std::int64_t out_bytes() const;
  // The longest slice. A rank's slice to itself counts only if it is reduced.
  std::int64_t longest(int rank) const;
};

// Plans a collective in which all data go directly to their receivers. Not for barrier, send, recv.
HostPlan plan_on_host(const CollectiveCall& call, int rank, int size);

}  // namespace gantry
