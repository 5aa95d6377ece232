#include "collectives/slices.hpp"

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
#include "collectives/kinds.def"
#undef KIND
  };
  return kRoles[static_cast<std::size_t>(kind)];
}

Roles two_shot_roles(CollectiveKind kind) {
  if (kind == CollectiveKind::all_reduce) return {Ranks::all, Ranks::all, Ranks::all};
  if (kind == CollectiveKind::reduce) return {Ranks::all, Ranks::others, Ranks::root};
  return {Ranks::root, Ranks::others, Ranks::others};
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
