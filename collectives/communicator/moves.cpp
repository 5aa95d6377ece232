// Operations of a communicator that copy elements without a reduction.

#include <gantry/collectives/communicator.hpp>

#include <fmt/format.h>

#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/descriptor.hpp"
#include "collectives/transport.hpp"

namespace gantry {

namespace {

// Returns the number of elements per rank for `rows` rows of `tensor`.
std::vector<std::int64_t> elements_of(std::span<const std::int64_t> rows, const Tensor& tensor) {
  std::int64_t width = 1;
  for (int dim = 1; dim < tensor.dim(); ++dim) width *= tensor.size(dim);
  std::vector<std::int64_t> counts(rows.begin(), rows.end());
  for (std::int64_t& count : counts) count *= width;
  return counts;
}

}  // namespace

Work Communicator::broadcast(const Tensor& tensor, int root, CollectiveOptions options) const {
  const Membership& me = impl("broadcast").members.self;
  require_tensor(tensor, me.device, "broadcast", "tensor");
  require_writable(tensor, "broadcast", "tensor");
  require_root(root, me.size, "broadcast");
  CollectiveCall call = call_on(CollectiveKind::broadcast, tensor, root);
  return me.rank == root ? move_between(call, nullptr, &tensor, options)
                         : move_between(call, &tensor, nullptr, options);
}

Work Communicator::all_gather(const Tensor& output, const Tensor& input,
                              CollectiveOptions options) const {
  const Membership& me = impl("all_gather").members.self;
  require_pair(output, input, me.device, "all_gather");
  require_joined(output, input, me.size, "all_gather", "output");
  CollectiveCall call = call_on(CollectiveKind::all_gather, input);
  return move_between(call, &output, &input, options);
}

Work Communicator::gather(const Tensor& output, const Tensor& input, int root,
                          CollectiveOptions options) const {
  const Membership& me = impl("gather").members.self;
  require_tensor(input, me.device, "gather", "input");
  require_root(root, me.size, "gather");
  const bool receives = me.rank == root;
  if (receives) {
    require_tensor(output, me.device, "gather", "output");
    require_writable(output, "gather", "output");
    require_same_dtype(output, input, "gather");
    require_joined(output, input, me.size, "gather", "output");
  }
  CollectiveCall call = call_on(CollectiveKind::gather, input, root);
  return move_between(call, receives ? &output : nullptr, &input, options);
}

Work Communicator::scatter(const Tensor& output, const Tensor& input, int root,
                           CollectiveOptions options) const {
  const Membership& me = impl("scatter").members.self;
  require_tensor(output, me.device, "scatter", "output");
  require_writable(output, "scatter", "output");
  require_root(root, me.size, "scatter");
  const bool sends = me.rank == root;
  if (sends) {
    require_tensor(input, me.device, "scatter", "input");
    require_same_dtype(output, input, "scatter");
    require_joined(input, output, me.size, "scatter", "input");
  }
  CollectiveCall call = call_on(CollectiveKind::scatter, output, root);
  return move_between(call, &output, sends ? &input : nullptr, options);
}

Work Communicator::all_to_all(const Tensor& output, const Tensor& input,
                              CollectiveOptions options) const {
  const Membership& me = impl("all_to_all").members.self;
  require_pair(output, input, me.device, "all_to_all");
  require_same_row_shape(output, input, "all_to_all");
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(me.size), input.size(0) / me.size);
  require_row_counts(rows, input, me.size, "all_to_all", "input");
  require_row_counts(rows, output, me.size, "all_to_all", "output");
  CollectiveCall call{.what = {.count = input.numel() / me.size,
                               .kind = CollectiveKind::all_to_all,
                               .dtype = input.dtype(),
                               .operands = block_operands(input, me.size)}};
  return move_between(call, &output, &input, options);
}

Work Communicator::all_to_all(const Tensor& output, const Tensor& input,
                              std::span<const std::int64_t> output_rows,
                              std::span<const std::int64_t> input_rows,
                              CollectiveOptions options) const {
  const Membership& me = impl("all_to_all").members.self;
  require_pair(output, input, me.device, "all_to_all");
  require_same_row_shape(output, input, "all_to_all");
  require_row_counts(output_rows, output, me.size, "all_to_all", "output_rows");
  require_row_counts(input_rows, input, me.size, "all_to_all", "input_rows");
  const auto self = static_cast<std::size_t>(me.rank);
  if (input_rows[self] != output_rows[self]) {
    throw InvalidArgument(
        fmt::format("all_to_all: expected as many rows from this rank as it sends to itself, {}, "
                    "but got {} in 'output_rows'",
                    input_rows[self], output_rows[self]));
  }
  const std::vector<std::int64_t> sent = elements_of(input_rows, input);
  const std::vector<std::int64_t> received = elements_of(output_rows, output);
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
