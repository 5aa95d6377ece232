// The send and receive slices between the ranks of an operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/dtype.hpp>

#include "collectives/transport.hpp"

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

// True if a rank sends the same slice to all ranks that it sends to.
bool sends_one_slice(CollectiveKind kind);

// The slices between `rank` and `peer`, which may be `rank`, when all blocks have one size. Empty
// for barriers and messages.
PeerSlices even_slices(const Descriptor& what, int rank, int peer);

// Calls visit(peer, slices) for all ranks, in order.
template <class Visit>
void for_each_peer(const CollectiveCall& call, int rank, int size, Visit visit) {
  const auto width = static_cast<std::int64_t>(element_size(call.what.dtype));
  PeerSlices uneven;
  for (int p = 0; p < size; ++p) {
    if (!call.is_uneven()) {
      visit(p, even_slices(call.what, rank, p));
      continue;
    }
    uneven.send.bytes = call.send_counts[static_cast<std::size_t>(p)] * width;
    uneven.receive.bytes = call.recv_counts[static_cast<std::size_t>(p)] * width;
    visit(p, uneven);
    uneven.send.at += uneven.send.bytes;
    uneven.receive.at += uneven.receive.bytes;
  }
}

}  // namespace gantry
