// Operations of a communicator on blocks of unequal sizes.
//
// Note [Uneven sums]
// A reduce_scatter of unequal blocks first moves the blocks, as an all_to_all does. Then each rank
// reduces the blocks that it got, in rank order: the bits equal the ones of all_reduce(). A
// mismatch moves nothing, but the host does not know, and the reduction runs all the same. So the
// result goes to memory of its own. A further transfer of the call copies it to the output, and
// does nothing after a mismatch: see Note [Lists].

#include <gantry/collectives/communicator.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/hierarchical/transport.hpp"
#include "collectives/selection/descriptor.hpp"
#include "collectives/traced_collective.hpp"
#include "collectives/transport.hpp"

namespace gantry {

namespace {

using Counts = std::vector<std::int64_t>;

std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

// Returns the number of elements per rank for `rows` rows of `tensor`.
Counts elements_of(std::span<const std::int64_t> rows, const Tensor& tensor) {
  std::int64_t width = 1;
  for (int dim = 1; dim < tensor.dim(); ++dim) width *= tensor.size(dim);
  Counts counts(rows.begin(), rows.end());
  for (std::int64_t& count : counts) count *= width;
  return counts;
}

bool are_equal(std::span<const std::int64_t> rows) {
  return std::ranges::all_of(rows, [&](std::int64_t count) { return count == rows.front(); });
}

// Requires that this rank's tensor has the rows that the list gives it.
void require_own_rows(std::span<const std::int64_t> rows, const Tensor& tensor, int rank,
                      std::string_view op, std::string_view argument) {
  if (tensor.dim() > 0 && tensor.size(0) == rows[as_index(rank)]) return;
  throw ShapeError(
      fmt::format("{}: expected '{}' of {} rows, as 'rows' has them for rank {}, but "
                  "its shape is {}",
                  op, argument, rows[as_index(rank)], rank, tensor.sizes().str()));
}

// Requires a list with a number of rows for each rank.
void require_rows(std::span<const std::int64_t> rows, int ranks, std::string_view op) {
  if (rows.size() != as_index(ranks)) {
    throw ShapeError(fmt::format("{}: expected {} numbers in 'rows', one per rank, but got {}", op,
                                 ranks, rows.size()));
  }
  for (const std::int64_t count : rows) {
    if (count >= 0) continue;
    throw ShapeError(
        fmt::format("{}: expected no negative number in 'rows', but got {}", op, count));
  }
}

// A call whose operands are the blocks of all ranks.
CollectiveCall call_on(CollectiveKind kind, const Tensor& tensor,
                       std::span<const std::int64_t> rows, const Counts& sent,
                       const Counts& received, int root = -1, ReduceOp op = ReduceOp::sum) {
  return {.what = {.count = -1,
                   .root = root,
                   .kind = kind,
                   .op = op,
                   .dtype = tensor.dtype(),
                   .operands = block_operands(tensor, rows)},
          .send_counts = sent,
          .recv_counts = received};
}

}  // namespace

Work Communicator::all_gather(const Tensor& output, const Tensor& input,
                              std::span<const std::int64_t> rows, CollectiveOptions options) const {
  const Membership& me = impl("all_gather").members.self;
  require_pair(output, input, me.device, "all_gather");
  require_same_row_shape(output, input, "all_gather");
  require_row_counts(rows, output, me.size, "all_gather", "output", "rows");
  require_own_rows(rows, input, me.rank, "all_gather", "input");
  if (are_equal(rows)) return all_gather(output, input, std::move(options));
  const Counts received = elements_of(rows, output);
  const Counts sent(received.size(), received[as_index(me.rank)]);
  CollectiveCall call = call_on(CollectiveKind::all_gather, input, rows, sent, received);
  return move_between(call, &output, &input, options);
}

Work Communicator::gather(const Tensor& output, const Tensor& input,
                          std::span<const std::int64_t> rows, int root,
                          CollectiveOptions options) const {
  const Membership& me = impl("gather").members.self;
  require_tensor(input, me.device, "gather", "input");
  require_root(root, me.size, "gather");
  require_rows(rows, me.size, "gather");
  require_own_rows(rows, input, me.rank, "gather", "input");
  const bool receives = me.rank == root;
  if (receives) {
    require_pair(output, input, me.device, "gather");
    require_same_row_shape(output, input, "gather");
    require_row_counts(rows, output, me.size, "gather", "output", "rows");
  }
  if (are_equal(rows)) return gather(output, input, root, std::move(options));
  const Counts counts = elements_of(rows, input);
  Counts sent(counts.size(), 0);
  sent[as_index(root)] = counts[as_index(me.rank)];
  const Counts received = receives ? counts : Counts(counts.size(), 0);
  CollectiveCall call = call_on(CollectiveKind::gather, input, rows, sent, received, root);
  return move_between(call, receives ? &output : nullptr, &input, options);
}

Work Communicator::scatter(const Tensor& output, const Tensor& input,
                           std::span<const std::int64_t> rows, int root,
                           CollectiveOptions options) const {
  const Membership& me = impl("scatter").members.self;
  require_tensor(output, me.device, "scatter", "output");
  require_writable(output, "scatter", "output");
  require_root(root, me.size, "scatter");
  require_rows(rows, me.size, "scatter");
  require_own_rows(rows, output, me.rank, "scatter", "output");
  const bool sends = me.rank == root;
  if (sends) {
    require_pair(output, input, me.device, "scatter");
    require_same_row_shape(output, input, "scatter");
    require_row_counts(rows, input, me.size, "scatter", "input", "rows");
  }
  if (are_equal(rows)) return scatter(output, input, root, std::move(options));
  const Counts counts = elements_of(rows, output);
  const Counts sent = sends ? counts : Counts(counts.size(), 0);
  Counts received(counts.size(), 0);
  received[as_index(root)] = counts[as_index(me.rank)];
  CollectiveCall call = call_on(CollectiveKind::scatter, output, rows, sent, received, root);
  return move_between(call, &output, sends ? &input : nullptr, options);
}

Work Communicator::reduce_scatter(const Tensor& output, const Tensor& input,
                                  std::span<const std::int64_t> rows, ReduceOp op,
                                  CollectiveOptions options) const {
  Impl& mine = impl("reduce_scatter");
  const Membership& me = mine.members.self;
  require_pair(output, input, me.device, "reduce_scatter");
  require_same_row_shape(output, input, "reduce_scatter");
  require_row_counts(rows, input, me.size, "reduce_scatter", "input", "rows");
  require_own_rows(rows, output, me.rank, "reduce_scatter", "output");
  require_reducible(op, input.dtype(), options, "reduce_scatter");
  if (are_equal(rows)) return reduce_scatter(output, input, op, std::move(options));
  const Counts sent = elements_of(rows, input);
  const Counts received(sent.size(), sent[as_index(me.rank)]);
  CollectiveCall call =
      call_on(CollectiveKind::reduce_scatter, input, rows, sent, received, -1, op);
  const TracedCollective traced(call, me.size);
  const TensorOptions on_device{.dtype = input.dtype(), .device = me.device};
  const Tensor blocks = empty({me.size * output.numel()}, on_device);
  Work work = transfer(call, &blocks, &input, options);
  std::vector<int> order(as_index(me.size));
  std::iota(order.begin(), order.end(), 0);
  const Tensor result = empty({output.numel()}, on_device);
  reduce_ordered(result, blocks, order, call.what);
  if (mine.transports.p2p() == nullptr) {  // a mismatch has been thrown
    Tensor(output).copy_(result.view(output.sizes()));
    mark_end(work);
    return work;
  }
  Counts own(sent.size(), 0);
  own[as_index(me.rank)] = output.numel();
  CollectiveCall rest = call;
  rest.send_counts = rest.recv_counts = own;
  rest.continues = true;
  const Tensor shaped = result.view(output.sizes());
  return transfer(rest, &output, &shaped, options);
}

Work Communicator::all_to_all(const Tensor& output, const Tensor& input,
                              std::span<const std::int64_t> output_rows,
                              std::span<const std::int64_t> input_rows,
                              CollectiveOptions options) const {
  const Membership& me = impl("all_to_all").members.self;
  require_pair(output, input, me.device, "all_to_all");
  require_same_row_shape(output, input, "all_to_all");
  require_row_counts(output_rows, output, me.size, "all_to_all", "output", "output_rows");
  require_row_counts(input_rows, input, me.size, "all_to_all", "input", "input_rows");
  const std::size_t self = as_index(me.rank);
  if (input_rows[self] != output_rows[self]) {
    throw InvalidArgument(
        fmt::format("all_to_all: expected as many rows from this rank as it sends to itself, {}, "
                    "but got {} in 'output_rows'",
                    input_rows[self], output_rows[self]));
  }
  const Counts sent = elements_of(input_rows, input);
  const Counts received = elements_of(output_rows, output);
  // Counts differ between ranks, so the descriptor only marks the call as uneven.
  CollectiveCall call{.what = {.count = -1,
                               .kind = CollectiveKind::all_to_all,
                               .dtype = input.dtype(),
                               .operands = row_operands(input)},
                      .send_counts = sent,
                      .recv_counts = received};
  return move_between(call, &output, &input, options);
}

}  // namespace gantry
