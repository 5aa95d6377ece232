#include "tools/bench/rank_slice.hpp"

#include "tools/bench/pattern.hpp"

namespace gantry::bench {

Parts parts_of(const Case& what, int rank, int ranks) {
  const bool root = rank == what.root;
  switch (what.kind) {
    case CollectiveKind::barrier:
      return {};
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
      return {0, 1};
    case CollectiveKind::all_gather:
      return {1, ranks};
    case CollectiveKind::reduce_scatter:
      return {ranks, 1};
    case CollectiveKind::gather:
      return {1, root ? ranks : 0};
    case CollectiveKind::scatter:
      return {root ? ranks : 0, 1};
    case CollectiveKind::all_to_all:
      return {ranks, ranks};
    case CollectiveKind::send:
    case CollectiveKind::recv:
      const Pair pair = pair_of(rank, ranks);
      if (pair.peer < 0) return {};
      return pair.sends ? Parts{1, 0} : Parts{0, 1};
  }
  __builtin_unreachable();
}

Pair pair_of(int rank, int ranks) {
  if ((rank ^ 1) >= ranks) return {};
  return {rank ^ 1, rank % 2 == 0};
}

std::int64_t count_wrong_output(const Case& what, int rank, int ranks, const std::byte* got,
                                double tolerance) {
  if (parts_of(what, rank, ranks).output == 0) return 0;
  const std::size_t part_bytes = static_cast<std::size_t>(what.count) * element_size(what.dtype);
  // Part `part` of the output against elements `first` … of one rank's data, or of the reduction.
  const auto moved = [&](int source, std::int64_t first, int part = 0) {
    return count_wrong(source_pattern(source, what.dtype), what.dtype, first, what.count,
                       got + part_bytes * static_cast<std::size_t>(part));
  };
  const auto reduced = [&](std::int64_t first) {
    const Pattern pattern = reduced_pattern(ranks, what.dtype, what.op);
    return tolerance == 0 ? count_wrong(pattern, what.dtype, first, what.count, got)
                          : count_far(pattern, what.dtype, first, what.count, got, tolerance);
  };
  std::int64_t wrong = 0;
  switch (what.kind) {
    case CollectiveKind::barrier:
      return 0;
    case CollectiveKind::reduce:
      // The others keep what they have.
      return rank == what.root ? reduced(0) : moved(rank, 0);
    case CollectiveKind::all_reduce:
      return reduced(0);
    case CollectiveKind::reduce_scatter:
      return reduced(rank * what.count);
    case CollectiveKind::broadcast:
      return moved(what.root, 0);
    case CollectiveKind::scatter:
      return moved(what.root, rank * what.count);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return moved(pair_of(rank, ranks).peer, 0);
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::all_to_all:
      for (int peer = 0; peer < ranks; ++peer) {
        wrong += moved(peer, what.kind == CollectiveKind::all_to_all ? rank * what.count : 0, peer);
      }
      return wrong;
  }
  __builtin_unreachable();
}

}  // namespace gantry::bench
