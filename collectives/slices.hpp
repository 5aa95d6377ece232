// The send and receive slices between the ranks of an operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/dtype.hpp>

#include "collectives/call.hpp"
#include "collectives/partition.hpp"
#include "collectives/protocol/route.hpp"

namespace gantry {

// The ranks that play one role in an operation. The others are all but the root.
enum class Ranks : std::uint8_t { none, all, root, others };
constexpr bool includes(Ranks ranks, int root, int rank) {
  return ranks == Ranks::all || (ranks == Ranks::root && rank == root) ||
         (ranks == Ranks::others && rank != root);
}

RankSet set_of(Ranks ranks, int root, int size);

// Who sends, reduces and receives. Every sender sends a slice to each reducer, which reduces or
// keeps what it gets. In a two-shot every reducer then sends its result to each receiver. A rank's
// slice for itself takes this way, too.
struct Roles {
  Ranks senders = Ranks::none;
  Ranks reducers = Ranks::none;
  Ranks receivers = Ranks::none;
  // True if a sender sends the same slice to all, and if a reducer gets one slice, or slices that
  // it reduces to one. Else there is one for each rank.
  bool sends_one = true;
  bool receives_one = true;
};
// The roles in one shot; none in messages.
const Roles& one_shot_roles(CollectiveKind kind);
// The roles in the two shots of an all_reduce, reduce or broadcast. The link of a root carries no
// slice twice.
Roles two_shot_roles(CollectiveKind kind);

// The slices of an array that ranks reduce, or fetch from a root, where they access each other's
// arrays: one for each reducer, in bytes.
struct ReducedSlices {
  std::int64_t bytes = 0;  // of the array
  RankSet reducers = 0;

  // The slice of a rank, aligned for 16-byte words; empty unless it is a reducer.
  Part of(int rank) const;
  // The bytes of the first reducer's slice: no other is longer.
  std::int64_t longest() const;
};
// Of an all_reduce, reduce, broadcast or reduce_scatter among `size` ranks.
ReducedSlices reduced_slices(const Descriptor& what, int size);

// The slices between `rank` and `peer`, which may be `rank`, when all blocks have one size. Empty
// for barriers and messages.
PeerSlices even_slices(const Descriptor& what, int rank, int peer);

// Calls visit(peer, slices) for all ranks, in order.
template <class Visit>
void for_each_peer(const CollectiveCall& call, int rank, int size, Visit visit) {
  const auto width = static_cast<std::int64_t>(element_size(call.what.dtype));
  const bool sends_one = one_shot_roles(call.what.kind).sends_one;
  PeerSlices uneven;
  for (int p = 0; p < size; ++p) {
    if (!call.is_uneven()) {
      visit(p, even_slices(call.what, rank, p));
      continue;
    }
    uneven.send.bytes = call.send_counts[static_cast<std::size_t>(p)] * width;
    uneven.receive.bytes = call.recv_counts[static_cast<std::size_t>(p)] * width;
    visit(p, uneven);
    if (!sends_one) uneven.send.at += uneven.send.bytes;
    uneven.receive.at += uneven.receive.bytes;
  }
}

}  // namespace gantry
