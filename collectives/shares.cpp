#include "collectives/shares.hpp"

namespace gantry {

bool offers_one(CollectiveKind kind) {
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

PeerShares even_shares(const Descriptor& what, int rank, int peer) {
  const std::int64_t bytes = what.count * static_cast<std::int64_t>(element_size(what.dtype));
  const Share all{0, bytes};
  const Share place{peer * bytes, bytes};
  const Share with_root = peer == what.root ? all : Share{};
  switch (what.kind) {
    case CollectiveKind::all_reduce:
      return {all, all};
    case CollectiveKind::reduce:
      return {with_root, rank == what.root ? all : Share{}};
    case CollectiveKind::broadcast:
      return {rank == what.root ? all : Share{}, with_root};
    case CollectiveKind::all_gather:
      return {all, place};
    case CollectiveKind::reduce_scatter:
      return {place, all};
    case CollectiveKind::gather:
      return {with_root, rank == what.root ? place : Share{}};
    case CollectiveKind::scatter:
      return {rank == what.root ? place : Share{}, with_root};
    case CollectiveKind::all_to_all:
      return {place, place};
    case CollectiveKind::barrier:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return {};
  }
  __builtin_unreachable();
}

}  // namespace gantry
