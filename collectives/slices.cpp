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

PeerSlices even_slices(const Descriptor& what, int rank, int peer) {
  const std::int64_t bytes = what.count * static_cast<std::int64_t>(element_size(what.dtype));
  const ByteSlice all{0, bytes};
  const ByteSlice own_slice{peer * bytes, bytes};
  const ByteSlice with_root = peer == what.root ? all : ByteSlice{};
  switch (what.kind) {
    case CollectiveKind::all_reduce:
      return {all, all};
    case CollectiveKind::reduce:
      return {with_root, rank == what.root ? all : ByteSlice{}};
    case CollectiveKind::broadcast:
      return {rank == what.root ? all : ByteSlice{}, with_root};
    case CollectiveKind::all_gather:
      return {all, own_slice};
    case CollectiveKind::reduce_scatter:
      return {own_slice, all};
    case CollectiveKind::gather:
      return {with_root, rank == what.root ? own_slice : ByteSlice{}};
    case CollectiveKind::scatter:
      return {rank == what.root ? own_slice : ByteSlice{}, with_root};
    case CollectiveKind::all_to_all:
      return {own_slice, own_slice};
    case CollectiveKind::barrier:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return {};
  }
  __builtin_unreachable();
}

}  // namespace gantry
