#include "collectives/hierarchical/run.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/hierarchical/transport.hpp"
#include "collectives/reduction.hpp"

namespace gantry {

namespace {

// Reduces any number of arrays. Requires fits_passes().
void reduce_arrays(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                   const NaryReduction& how) {
  const auto* base = static_cast<const std::byte*>(contributions.data());
  std::vector<const void*> inputs;
  inputs.reserve(order.size());
  for (const int place : order) {
    inputs.push_back(base + static_cast<std::size_t>(place) * out.nbytes());
  }
  reduce_in_passes(kernels::Target::on(Stream::current(out.device())), how, out.data(), inputs,
                   out.numel(), out.dtype());
}

}  // namespace

bool is_free_order(const Descriptor& what) {
  if (what.reproducible == 0 || !is_floating_point(what.dtype)) return true;
  switch (what.op) {
    case ReduceOp::min:
    case ReduceOp::max:
      return true;
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::avg:
      return false;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return true;
  }
  __builtin_unreachable();
}

void reduce_ordered(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                    const Descriptor& what) {
  if (out.numel() == 0) return;
  const NaryReduction how =
      reduction_for(what.op, what.dtype, static_cast<int>(order.size()), name(what.kind));
  const bool is_narrow = is_floating_point(what.dtype) && element_size(what.dtype) < 4;
  const bool scales = what.scale != 1 && is_floating_point(what.dtype);
  if (!scales && fits_passes(what.dtype, order.size())) {
    return reduce_arrays(out, contributions, order, how);
  }
  // The kernel does not scale, and rounds its output: accumulate in the accumulator's dtype.
  const DType wide_type = is_narrow ? DType::f32 : what.dtype;
  Tensor wide = contributions.to(wide_type, {.copy = true});
  if (scales) wide.mul_(what.scale);
  const Tensor sum = wide.new_empty(out.sizes());
  reduce_arrays(sum, wide, order, how);
  Tensor(out).copy_(sum);
}

namespace {

// Bytes of one chunk. A few chunks of scratch memory are in use at a time.
constexpr std::int64_t kScratchBytes = std::int64_t{16} << 20;
// Parts are multiples of this many elements.
constexpr std::int64_t kGrain = 64;

}  // namespace

std::int64_t padded_elements(std::int64_t elements) {
  return (elements + kGrain - 1) / kGrain * kGrain;
}

std::int64_t part_elements(std::int64_t width, std::int64_t parts, std::int64_t total) {
  const std::int64_t most = std::max(kGrain, kScratchBytes / width / parts / kGrain * kGrain);
  return std::min(most, padded_elements((total + parts - 1) / parts));
}

Tensor HierarchicalTransport::Run::scratch(std::int64_t elements) const {
  return empty({elements}, {.dtype = what.dtype, .device = owner.everyone_.device});
}

std::byte* HierarchicalTransport::Run::at(const Tensor& tensor, std::int64_t element) const {
  return static_cast<std::byte*>(tensor.data()) + element * width;
}

void HierarchicalTransport::Run::copy(std::byte* to, const std::byte* from,
                                      std::int64_t elements) const {
  if (elements == 0 || to == from) return;
  driver().copy(to, from, static_cast<std::size_t>(elements * width), stream.native());
}

Tensor HierarchicalTransport::Run::transposed(const Tensor& parts, std::int64_t rows,
                                              std::int64_t columns, std::int64_t count) const {
  const Tensor result = scratch(rows * columns * count);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      copy(at(result, (c * rows + r) * count), at(parts, (r * columns + c) * count), count);
    }
  }
  return result;
}

Tensor HierarchicalTransport::Run::by_columns(const std::byte* from, std::int64_t stride,
                                              std::int64_t count) const {
  const Tensor result = scratch(nodes * ranks * count);
  for (int l = 0; l < ranks; ++l) {
    for (int k = 0; k < nodes; ++k) {
      copy(at(result, (l * nodes + k) * count), from + map.rank_at(k, l) * stride * width, count);
    }
  }
  return result;
}

void HierarchicalTransport::Run::to_ranks(const Tensor& chunk, std::int64_t begin,
                                          std::int64_t count) const {
  for (int rank = 0; rank < map.ranks(); ++rank) {
    copy(out + (rank * what.count + begin) * width,
         at(chunk, (map.index_of(rank) * nodes + map.node_of(rank)) * count), count);
  }
}

void HierarchicalTransport::Run::run_part(Transport& transport, std::int64_t size,
                                          CollectiveKind kind, std::int64_t count, const void* from,
                                          void* to, int root, double scale) const {
  CollectiveCall part{.what = what, .in = from, .out = to};
  part.what.kind = kind;
  part.what.count = count;
  part.what.root = root;
  part.what.scale = scale;
  part.what.operands = {};  // operands of the call, which all ranks have compared
  (void)transport.run(ResolvedCall(part, static_cast<int>(size)), stream);
}

void HierarchicalTransport::Run::in_node(CollectiveKind kind, std::int64_t count, const void* from,
                                         void* to, int root, bool scales) const {
  run_part(*owner.node_, ranks, kind, count, from, to, root, scales ? what.scale : 1);
}

void HierarchicalTransport::Run::in_column(CollectiveKind kind, std::int64_t count,
                                           const void* from, void* to, int root) const {
  run_part(*owner.column_, nodes, kind, count, from, to, root, 1);
}

Tensor HierarchicalTransport::Run::reduce_in_any_order(const std::byte* chunk,
                                                       std::int64_t count) const {
  const Tensor sums = scratch(nodes * count);
  in_node(CollectiveKind::reduce_scatter, nodes * count, chunk, sums.data(), -1, true);
  Tensor result = scratch(count);
  in_column(CollectiveKind::reduce_scatter, count, sums.data(), result.data());
  return result;
}

Tensor HierarchicalTransport::Run::reduce_in_order(const std::byte* chunk,
                                                   std::int64_t count) const {
  // [L][K]: this column's parts from the node's ranks. Then [K][L]: the parts for the column's
  // nodes.
  const Tensor collected = scratch(ranks * nodes * count);
  in_node(CollectiveKind::all_to_all, nodes * count, chunk, collected.data());
  const Tensor outbound = transposed(collected, ranks, nodes, count);
  const Tensor contributions = scratch(nodes * ranks * count);
  in_column(CollectiveKind::all_to_all, ranks * count, outbound.data(), contributions.data());
  std::vector<int> order;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    order.push_back(map.node_of(rank) * static_cast<int>(ranks) + map.index_of(rank));
  }
  Tensor result = scratch(count);
  reduce_ordered(result, contributions, order, what);
  return result;
}

Tensor HierarchicalTransport::Run::reduce_chunk(const std::byte* chunk, std::int64_t count) const {
  return is_free_order(what) ? reduce_in_any_order(chunk, count) : reduce_in_order(chunk, count);
}

template <class Collect>
void HierarchicalTransport::Run::reduce_chunks(bool receives, Collect collect) {
  const std::int64_t parts = nodes * ranks;
  const std::int64_t count = part_elements(width, parts, what.count);
  for (std::int64_t begin = 0; begin < what.count; begin += parts * count) {
    const std::int64_t rest = what.count - begin;
    const std::byte* const from = in + begin * width;
    if (rest >= parts * count) {
      collect(reduce_chunk(from, count), count, receives ? out + begin * width : nullptr);
      continue;
    }
    // The last chunk has shorter parts, and the last parts are padded.
    const std::int64_t last = padded_elements((rest + parts - 1) / parts);
    const Tensor padded = scratch(parts * last);
    driver().fill(padded.data(), 0, padded.nbytes(), stream.native());
    copy(at(padded, 0), from, rest);
    collect(reduce_chunk(at(padded, 0), last), last, receives ? at(padded, 0) : nullptr);
    if (receives) copy(out + begin * width, at(padded, 0), rest);
  }
}

void HierarchicalTransport::Run::all_reduce() {
  reduce_chunks(true, [&](const Tensor& part, std::int64_t count, std::byte* to) {
    const Tensor share = scratch(nodes * count);
    in_column(CollectiveKind::all_gather, count, part.data(), share.data());
    in_node(CollectiveKind::all_gather, nodes * count, share.data(), to);
  });
}

void HierarchicalTransport::Run::reduce() {
  const int root_node = map.node_of(what.root);
  reduce_chunks(is_root, [&](const Tensor& part, std::int64_t count, std::byte* to) {
    const Tensor share = scratch(node == root_node ? nodes * count : 0);
    in_column(CollectiveKind::gather, count, part.data(), share.data(), root_node);
    if (node != root_node) return;
    in_node(CollectiveKind::gather, nodes * count, share.data(), to, map.index_of(what.root));
  });
}

void HierarchicalTransport::Run::broadcast() {
  const int root_node = map.node_of(what.root);
  const std::int64_t count = part_elements(width, ranks, what.count);
  for (std::int64_t begin = 0; begin < what.count; begin += ranks * count) {
    const std::int64_t rest = std::min(what.count - begin, ranks * count);
    const std::int64_t each = padded_elements((rest + ranks - 1) / ranks);
    const bool is_padded = rest < ranks * each;
    const Tensor whole = scratch(is_padded ? ranks * each : 0);
    const std::byte* from = in + begin * width;
    if (is_padded && is_root) {
      driver().fill(whole.data(), 0, whole.nbytes(), stream.native());
      copy(at(whole, 0), from, rest);
      from = at(whole, 0);
    }
    const Tensor share = scratch(each);
    if (node == root_node) {
      in_node(CollectiveKind::scatter, each, is_root ? from : nullptr, share.data(),
              map.index_of(what.root));
    }
    in_column(CollectiveKind::broadcast, each, share.data(), share.data(), root_node);
    std::byte* const to = is_padded ? at(whole, 0) : out + begin * width;
    in_node(CollectiveKind::all_gather, each, share.data(), to);
    if (is_padded) copy(out + begin * width, to, rest);
  }
}

template <class Visit>
void HierarchicalTransport::Run::for_each_chunk(Visit visit) const {
  const std::int64_t most = part_elements(width, nodes * ranks, what.count * nodes * ranks);
  for (std::int64_t begin = 0; begin < what.count; begin += most) {
    visit(begin, std::min(most, what.count - begin));
  }
}

void HierarchicalTransport::Run::all_gather() {
  for_each_chunk([&](std::int64_t begin, std::int64_t count) {
    const Tensor share = scratch(nodes * count);
    in_column(CollectiveKind::all_gather, count, in + begin * width, share.data());
    const Tensor whole = scratch(ranks * nodes * count);
    in_node(CollectiveKind::all_gather, nodes * count, share.data(), whole.data());
    to_ranks(whole, begin, count);
  });
}

void HierarchicalTransport::Run::reduce_scatter() {
  for_each_chunk([&](std::int64_t begin, std::int64_t count) {
    const Tensor chunk = by_columns(in + begin * width, what.count, count);
    copy(out + begin * width, at(reduce_chunk(at(chunk, 0), count), 0), count);
  });
}

void HierarchicalTransport::Run::gather() {
  const int root_node = map.node_of(what.root);
  const int root_index = map.index_of(what.root);
  for_each_chunk([&](std::int64_t begin, std::int64_t count) {
    const Tensor row = scratch(index == root_index ? ranks * count : 0);
    in_node(CollectiveKind::gather, count, in + begin * width, row.data(), root_index);
    if (index != root_index) return;
    const Tensor whole = scratch(is_root ? nodes * ranks * count : 0);
    in_column(CollectiveKind::gather, ranks * count, row.data(), whole.data(), root_node);
    for (int rank = 0; is_root && rank < map.ranks(); ++rank) {
      copy(out + (rank * what.count + begin) * width,
           at(whole, (map.node_of(rank) * ranks + map.index_of(rank)) * count), count);
    }
  });
}

void HierarchicalTransport::Run::scatter() {
  const int root_node = map.node_of(what.root);
  const int root_index = map.index_of(what.root);
  for_each_chunk([&](std::int64_t begin, std::int64_t count) {
    const Tensor row = scratch(index == root_index ? ranks * count : 0);
    if (index == root_index) {
      const Tensor whole = scratch(is_root ? nodes * ranks * count : 0);
      for (int rank = 0; is_root && rank < map.ranks(); ++rank) {
        copy(at(whole, (map.node_of(rank) * ranks + map.index_of(rank)) * count),
             in + (rank * what.count + begin) * width, count);
      }
      in_column(CollectiveKind::scatter, ranks * count, whole.data(), row.data(), root_node);
    }
    in_node(CollectiveKind::scatter, count, row.data(), out + begin * width, root_index);
  });
}

void HierarchicalTransport::Run::all_to_all() {
  for_each_chunk([&](std::int64_t begin, std::int64_t count) {
    const Tensor by_column = by_columns(in + begin * width, what.count, count);
    const Tensor outbound = transposed(by_column, ranks, nodes, count);
    // [K][L]: from this column's rank of every node, for every rank of this node.
    const Tensor arrived = scratch(nodes * ranks * count);
    in_column(CollectiveKind::all_to_all, ranks * count, outbound.data(), arrived.data());
    const Tensor dealt = transposed(arrived, nodes, ranks, count);
    const Tensor whole = scratch(ranks * nodes * count);
    in_node(CollectiveKind::all_to_all, nodes * count, dealt.data(), whole.data());
    to_ranks(whole, begin, count);
  });
}

}  // namespace gantry
