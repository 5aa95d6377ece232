// Ranks and slices of operations, on host and device.
#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

// A slice: bytes [at, at + bytes) of the input or the output.
struct ByteSlice {
  std::int64_t at = 0;
  std::int64_t bytes = 0;
};

// The slices between a rank and one peer: sent to the peer, received from it.
struct PeerSlices {
  ByteSlice send;
  ByteSlice receive;
};

// A set of ranks, one bit each.
using RankSet = std::uint32_t;
GANTRY_HD constexpr bool has(RankSet ranks, int rank) { return (ranks >> rank & 1) != 0; }
GANTRY_HD constexpr RankSet only(int rank) { return RankSet{1} << rank; }
GANTRY_HD constexpr RankSet all_ranks(int ranks) { return ~RankSet{0} >> (32 - ranks); }

// The ranks that send, reduce and receive in an operation; the same on all ranks. See Roles.
struct Route {
  RankSet senders = 0;
  RankSet reducers = 0;
  RankSet receivers = 0;

  GANTRY_HD RankSet sends_to(int rank) const { return has(senders, rank) ? reducers : 0; }
  GANTRY_HD RankSet receives_from(int rank) const { return has(reducers, rank) ? senders : 0; }
};

}  // namespace gantry
