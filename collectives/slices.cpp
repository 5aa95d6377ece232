#include "collectives/slices.hpp"

namespace gantry {

bool sends_one_slice(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return false;
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return true;
  }
  __builtin_unreachable();
}

bool receives_one_slice(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::all_to_all:
      return false;
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::scatter:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return true;
  }
  __builtin_unreachable();
}

RankSet set_of(Ranks ranks, int root, int size) {
  RankSet set = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (includes(ranks, root, rank)) set |= only(rank);
  }
  return set;
}

Roles one_shot_roles(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return {.senders = Ranks::all, .reducers = Ranks::all};
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
      return {.senders = Ranks::all, .reducers = Ranks::root};
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter:
      return {.senders = Ranks::root, .reducers = Ranks::all};
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return {};
  }
  __builtin_unreachable();
}

Roles two_shot_roles(CollectiveKind kind) {
  if (kind == CollectiveKind::all_reduce) return {Ranks::all, Ranks::all, Ranks::all};
  if (kind == CollectiveKind::reduce) return {Ranks::all, Ranks::others, Ranks::root};
  return {Ranks::root, Ranks::others, Ranks::others};
}

PeerSlices even_slices(const Descriptor& what, int rank, int peer) {
  const Roles roles = one_shot_roles(what.kind);
  const std::int64_t bytes = what.count * static_cast<std::int64_t>(element_size(what.dtype));
  const auto goes = [&](int from, int to) {
    return includes(roles.senders, what.root, from) && includes(roles.reducers, what.root, to);
  };
  const auto slice = [&](bool is_one) { return ByteSlice{is_one ? 0 : peer * bytes, bytes}; };
  PeerSlices slices;
  if (goes(rank, peer)) slices.send = slice(sends_one_slice(what.kind));
  if (goes(peer, rank)) slices.receive = slice(receives_one_slice(what.kind));
  return slices;
}

}  // namespace gantry
