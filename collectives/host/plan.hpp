#pragma once

#include <cstdint>
#include <vector>

#include "collectives/slices.hpp"

namespace gantry {

// What one rank gives to every rank and takes from every rank, itself included, as bytes of its
// arrays.
struct HostPlan {
  std::vector<ByteSlice> offers;  // of `in`
  std::vector<ByteSlice> takes;   // of `out`; all the same place if they are folded
  bool offers_one = false;        // every rank is given the same bytes
  bool folds = false;

  // Where the last offer, and the last take, ends.
  std::int64_t in_bytes() const;
  std::int64_t out_bytes() const;
  // The longest piece, those that a rank gives to itself left out unless they are folded.
  std::int64_t longest(int rank) const;
};

// The plan of any kind but barrier, send and recv in which all data go straight to their takers.
HostPlan plan_on_host(const CollectiveCall& call, int rank, int size);

}  // namespace gantry
