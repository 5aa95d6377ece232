#include "collectives/slices.hpp"

#include <bit>

namespace gantry {

RankSet set_of(Ranks ranks, int root, int size) {
  RankSet set = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (includes(ranks, root, rank)) set |= only(rank);
  }
  return set;
}

const Roles& one_shot_roles(CollectiveKind kind) {
  constexpr bool one = true;
  constexpr bool many = false;
  static constexpr Roles kRoles[] = {
#define KIND(name, from, to, sent, received, style) \
  {.senders = Ranks::from, .reducers = Ranks::to, .sends_one = sent, .receives_one = received},
#include "collectives/selection/kinds.def"
#undef KIND
  };
  return kRoles[static_cast<std::size_t>(kind)];
}

Roles two_shot_roles(CollectiveKind kind) {
  if (kind == CollectiveKind::all_reduce) return {Ranks::all, Ranks::all, Ranks::all};
  if (kind == CollectiveKind::reduce) return {Ranks::all, Ranks::others, Ranks::root};
  return {Ranks::root, Ranks::others, Ranks::others};
}

Part ReducedSlices::of(int rank) const {
  constexpr std::int64_t kWord = 16;
  if (!has(reducers, rank)) return {};
  const int index = std::popcount(reducers & (only(rank) - 1));
  return partition(bytes, std::popcount(reducers), index, kWord);
}

std::int64_t ReducedSlices::longest() const { return of(std::countr_zero(reducers)).count; }

ReducedSlices reduced_slices(const Descriptor& what, int size) {
  if (what.kind == CollectiveKind::reduce_scatter) return {what.bytes() * size, all_ranks(size)};
  // Of two ranks the root reduces: then no stores run against its loads.
  const bool root_reduces = what.kind == CollectiveKind::reduce && size == 2;
  const Ranks ranks = root_reduces ? Ranks::root : two_shot_roles(what.kind).reducers;
  return {what.bytes(), set_of(ranks, what.root, size)};
}

PeerSlices even_slices(const Descriptor& what, int rank, int peer) {
  const Roles& roles = one_shot_roles(what.kind);
  const std::int64_t bytes = what.bytes();
  const auto goes = [&](int from, int to) {
    return includes(roles.senders, what.root, from) && includes(roles.reducers, what.root, to);
  };
  const auto slice = [&](bool is_one) { return ByteSlice{is_one ? 0 : peer * bytes, bytes}; };
  PeerSlices slices;
  if (goes(rank, peer)) slices.send = slice(roles.sends_one);
  if (goes(peer, rank)) slices.receive = slice(roles.receives_one);
  return slices;
}

}  // namespace gantry
