// Operations of a communicator that return their result in new memory.
#include <gantry/collectives/communicator.hpp>

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"

namespace gantry {

namespace {

// New memory for `ranks` tensors like this one, joined along dim 0; numbers give a vector.
Tensor joined(const Tensor& input, int ranks) {
  Shape shape = input.sizes();
  if (input.dim() == 0) {
    shape = {ranks};
  } else {
    shape[0] *= ranks;
  }
  return empty(shape, {.dtype = input.dtype(), .device = input.device()});
}

}  // namespace

Tensor Communicator::all_gather(const Tensor& input, CollectiveOptions options) const {
  const Membership& me = impl("all_gather").members.self;
  require_tensor(input, me.device, "all_gather", "input");
  Tensor output = joined(input, me.size);
  all_gather(output, input, std::move(options));
  return output;
}

Tensor Communicator::reduce_scatter(const Tensor& input, ReduceOp op,
                                    CollectiveOptions options) const {
  const Membership& me = impl("reduce_scatter").members.self;
  require_tensor(input, me.device, "reduce_scatter", "input");
  if (input.dim() == 0 || input.size(0) % me.size != 0) {
    throw ShapeError(
        fmt::format("reduce_scatter: expected 'input' with a multiple of {} rows, one part per "
                    "rank, but its shape is {}",
                    me.size, input.sizes().str()));
  }
  Shape shape = input.sizes();
  shape[0] /= me.size;
  Tensor output = empty(shape, {.dtype = input.dtype(), .device = input.device()});
  reduce_scatter(output, input, op, std::move(options));
  return output;
}

Tensor Communicator::gather(const Tensor& input, int root, CollectiveOptions options) const {
  const Membership& me = impl("gather").members.self;
  require_tensor(input, me.device, "gather", "input");
  require_root(root, me.size, "gather");
  Tensor output = me.rank == root ? joined(input, me.size) : Tensor();
  gather(output, input, root, std::move(options));
  return output;
}

Tensor Communicator::all_to_all(const Tensor& input, CollectiveOptions options) const {
  require_tensor(input, impl("all_to_all").members.self.device, "all_to_all", "input");
  Tensor output = empty(input.sizes(), {.dtype = input.dtype(), .device = input.device()});
  all_to_all(output, input, std::move(options));
  return output;
}

}  // namespace gantry
