// Operations of a communicator that copy elements without a reduction.

#include <gantry/collectives/communicator.hpp>

#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/selection/descriptor.hpp"
#include "collectives/transport.hpp"

namespace gantry {

Work Communicator::broadcast(const Tensor& tensor, int root, CollectiveOptions options) const {
  const Membership& me = impl("broadcast").members.self;
  require_tensor(tensor, me.device, "broadcast", "tensor");
  require_writable(tensor, "broadcast", "tensor");
  require_root(root, me.size, "broadcast");
  CollectiveCall call = call_on(CollectiveKind::broadcast, tensor, root);
  return me.rank == root ? move_between(call, nullptr, &tensor, options)
                         : move_between(call, &tensor, nullptr, options);
}

Work Communicator::broadcast(const Tensor& output, const Tensor& input, int root,
                             CollectiveOptions options) const {
  const Membership& me = impl("broadcast").members.self;
  require_tensor(output, me.device, "broadcast", "output");
  require_writable(output, "broadcast", "output");
  require_root(root, me.size, "broadcast");
  if (me.rank != root) return broadcast(output, root, options);
  require_pair(output, input, me.device, "broadcast");
  require_same_shape(output, input, "broadcast");
  if (is_same_array(output, input)) return broadcast(output, root, options);
  CollectiveCall call = call_on(CollectiveKind::broadcast, input, root);
  return move_between(call, &output, &input, options);
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
  require_row_counts(rows, input, me.size, "all_to_all", "input", {});
  require_row_counts(rows, output, me.size, "all_to_all", "output", {});
  CollectiveCall call{.what = {.count = input.numel() / me.size,
                               .kind = CollectiveKind::all_to_all,
                               .dtype = input.dtype(),
                               .operands = block_operands(input, me.size)}};
  return move_between(call, &output, &input, options);
}

}  // namespace gantry
