#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/rearrangements.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "kernels/layout/join_plan.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

void check_list(std::string_view op, const std::vector<Tensor>& tensors) {
  if (tensors.empty()) {
    throw InvalidArgument(fmt::format("{}: expected a non-empty list of Tensors", op));
  }
}

// True for PyTorch's legacy empty tensor of shape [0], which cat skips.
bool is_skipped(const Tensor& tensor) { return tensor.dim() == 1 && tensor.numel() == 0; }

// Adds the size of a part along the joined dim. Views that repeat elements can have any size.
void add_size(std::string_view op, std::int64_t& total, std::int64_t size, Device device) {
  if (__builtin_add_overflow(total, size, &total)) {
    throw ShapeError(fmt::format("{}: expected a shape of less than 2^63 elements", op),
                     device.str());
  }
}

DType promoted(const std::vector<Tensor>& tensors) {
  const std::vector<Operand> operands(tensors.begin(), tensors.end());
  return result_type(operands);
}

// The shape of the joined tensor; sets `at` to the non-negative dim. If all tensors are skipped,
// dim is not checked.
Shape joined_shape(std::string_view op, const std::vector<Tensor>& tensors, int dim, int& at) {
  const Tensor* first = nullptr;
  Shape shape{0};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.dim() == 0) {
      throw ShapeError(
          fmt::format("{}: zero-dimensional tensor (at position {}) cannot be concatenated", op, i),
          tensor.device().str());
    }
    if (is_skipped(tensor)) continue;
    if (first == nullptr) {
      first = &tensor;
      shape = tensor.sizes();
      at = detail::wrap_dim(op, dim, tensor);
      continue;
    }
    if (tensor.dim() != first->dim()) {
      throw ShapeError(fmt::format("{}: Tensors must have same number of dimensions: got {} and {}",
                                   op, first->dim(), tensor.dim()),
                       tensor.device().str());
    }
    for (int d = 0; d < tensor.dim(); ++d) {
      if (d == at || tensor.sizes()[d] == shape[d]) continue;
      throw ShapeError(
          fmt::format("{}: Sizes of tensors must match except in dimension {}. Expected size {} "
                      "but got size {} for tensor number {} in the list.",
                      op, at, shape[d], tensor.sizes()[d], i),
          tensor.device().str());
    }
    add_size(op, shape[at], tensor.sizes()[at], tensor.device());
  }
  return shape;
}

// Joins tensors of one device and dtype by one kernel and returns true, where that is faster.
bool join_at_once(const Tensor& result, const std::vector<Tensor>& tensors, int dim) {
  std::vector<TensorRef> inputs;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    if (tensor.device() != result.device() || tensor.dtype() != result.dtype()) return false;
    inputs.push_back(tensor.ref());
  }
  return kernels::join(detail::target_of(result), result.ref(), inputs, dim);
}

Tensor join(std::string_view op, const std::vector<Tensor>& tensors, int dim,
            Tensor* out = nullptr) {
  const kernels::OpScope scope(op);
  check_list(op, tensors);
  const Device device = detail::common_device(op, tensors);
  int at = 0;
  const Shape shape = joined_shape(op, tensors, dim, at);
  if (out != nullptr) {
    detail::check_output(op, *out, shape, promoted(tensors), tensors[0]);
    for (const Tensor& tensor : tensors) detail::check_no_overlap(op, *out, tensor);
  }
  const Tensor result =
      out != nullptr ? *out : empty(shape, {.dtype = promoted(tensors), .device = device});
  if (join_at_once(result, tensors, at)) return result;
  std::int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    const std::int64_t size = tensor.sizes()[at];
    result.narrow(at, start, size).copy_(tensor);
    start += size;
  }
  return result;
}

}  // namespace

namespace {

Tensor run_stack(const std::vector<Tensor>& tensors, int dim, Tensor* out) {
  const kernels::OpScope scope("stack");
  check_list("stack", tensors);
  detail::common_device("stack", tensors);
  const Shape& shape = tensors[0].sizes();
  const int at = detail::wrap_dim("stack", dim, shape.size() + 1, tensors[0].device());
  std::vector<Tensor> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].sizes() != shape) {
      throw ShapeError(
          fmt::format(
              "stack: stack expects each tensor to be equal size, but got {} at entry 0 and {} at "
              "entry {}",
              shape.str(), tensors[i].sizes().str(), i),
          tensors[i].device().str());
    }
    pieces.push_back(tensors[i].unsqueeze(at));
  }
  return join("stack", pieces, at, out);
}

Tensor run_hstack(const std::vector<Tensor>& tensors, Tensor* out) {
  const kernels::OpScope scope("hstack");
  check_list("hstack", tensors);
  detail::common_device("hstack", tensors);
  std::vector<Tensor> pieces;
  for (const Tensor& tensor : tensors) {
    pieces.push_back(tensor.dim() == 0 ? tensor.reshape({1}) : tensor);
  }
  return join("hstack", pieces, pieces[0].dim() == 1 ? 0 : 1, out);
}

Tensor run_vstack(const std::vector<Tensor>& tensors, Tensor* out) {
  const kernels::OpScope scope("vstack");
  check_list("vstack", tensors);
  detail::common_device("vstack", tensors);
  std::vector<Tensor> pieces;
  for (const Tensor& tensor : tensors) {
    pieces.push_back(tensor.dim() < 2 ? tensor.reshape({1, tensor.numel()}) : tensor);
  }
  return join("vstack", pieces, 0, out);
}

Tensor run_dstack(const std::vector<Tensor>& tensors, Tensor* out) {
  const kernels::OpScope scope("dstack");
  check_list("dstack", tensors);
  detail::common_device("dstack", tensors);
  std::vector<Tensor> pieces;
  for (const Tensor& tensor : tensors) pieces.push_back(atleast_3d(tensor));
  return join("dstack", pieces, 2, out);
}

Tensor run_column_stack(const std::vector<Tensor>& tensors, Tensor* out) {
  const kernels::OpScope scope("column_stack");
  check_list("column_stack", tensors);
  detail::common_device("column_stack", tensors);
  std::vector<Tensor> pieces;
  for (const Tensor& tensor : tensors) {
    pieces.push_back(tensor.dim() < 2 ? tensor.reshape({tensor.numel(), 1}) : tensor);
  }
  return join("column_stack", pieces, 1, out);
}

}  // namespace

#define GANTRY_JOIN(name)                                                                  \
  Tensor name(const std::vector<Tensor>& tensors) { return run_##name(tensors, nullptr); } \
  Tensor& name##_out(Tensor& out, const std::vector<Tensor>& tensors) {                    \
    run_##name(tensors, &out);                                                             \
    return out;                                                                            \
  }
GANTRY_JOIN(hstack)
GANTRY_JOIN(vstack)
GANTRY_JOIN(dstack)
GANTRY_JOIN(column_stack)
#undef GANTRY_JOIN

Tensor cat(const std::vector<Tensor>& tensors, Dim dim) { return join("cat", tensors, dim); }
Tensor& cat_out(Tensor& out, const std::vector<Tensor>& tensors, Dim dim) {
  join("cat", tensors, dim, &out);
  return out;
}

Tensor stack(const std::vector<Tensor>& tensors, Dim dim) {
  return run_stack(tensors, dim, nullptr);
}
Tensor& stack_out(Tensor& out, const std::vector<Tensor>& tensors, Dim dim) {
  run_stack(tensors, dim, &out);
  return out;
}

Tensor block_diag(const std::vector<Tensor>& tensors) {
  const kernels::OpScope scope("block_diag");
  check_list("block_diag", tensors);
  const Device device = detail::common_device("block_diag", tensors);
  std::vector<Tensor> blocks;
  Shape shape{0, 0};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.dim() > 2) {
      throw ShapeError(fmt::format("block_diag: Input tensors must have 2 or fewer dimensions. "
                                   "Input {} has {} dimensions",
                                   i, tensor.dim()),
                       device.str());
    }
    blocks.push_back(atleast_2d(tensor));
    add_size("block_diag", shape[0], blocks.back().size(0), device);
    add_size("block_diag", shape[1], blocks.back().size(1), device);
  }
  Tensor result = zeros(shape, {.dtype = promoted(tensors), .device = device});
  std::int64_t row = 0;
  std::int64_t column = 0;
  for (const Tensor& block : blocks) {
    result.narrow(0, row, block.size(0)).narrow(1, column, block.size(1)).copy_(block);
    row += block.size(0);
    column += block.size(1);
  }
  return result;
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  Shape shape;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    detail::check_defined("broadcast_tensors", fmt::format("tensors[{}]", i), tensors[i]);
    shape = detail::common_shape("broadcast_tensors", {&shape, &tensors[i].sizes()},
                                 tensors[i].device());
  }
  std::vector<Tensor> views;
  for (const Tensor& tensor : tensors) views.push_back(tensor.expand(shape));
  return views;
}

}  // namespace gantry
