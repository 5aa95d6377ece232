// What each rank gives to, and takes from, each other one in an operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/dtype.hpp>

#include "collectives/transport.hpp"

namespace gantry {

// Bytes [at, at + bytes) of the input or the output.
struct Share {
  std::int64_t at = 0;
  std::int64_t bytes = 0;
};

struct PeerShares {
  Share offer;
  Share take;
};

// True if a rank offers the same bytes to all that it offers any.
bool offers_one(CollectiveKind kind);

// Between `rank` and `peer`, itself included, when all blocks are of equal size. Nothing for
// barriers and messages.
PeerShares even_shares(const Descriptor& what, int rank, int peer);

// Calls visit(peer, shares) for all ranks, in order.
template <class Visit>
void for_each_share(const CollectiveCall& call, int rank, int size, Visit visit) {
  const auto width = static_cast<std::int64_t>(element_size(call.what.dtype));
  PeerShares uneven;
  for (int p = 0; p < size; ++p) {
    if (!call.is_uneven()) {
      visit(p, even_shares(call.what, rank, p));
      continue;
    }
    uneven.offer.bytes = call.send_counts[static_cast<std::size_t>(p)] * width;
    uneven.take.bytes = call.recv_counts[static_cast<std::size_t>(p)] * width;
    visit(p, uneven);
    uneven.offer.at += uneven.offer.bytes;
    uneven.take.at += uneven.take.bytes;
  }
}

}  // namespace gantry
