#include "tests/tensor/bad_inputs/bad_inputs.hpp"

namespace gantry::testing {

namespace {

// i64 positions on the operands' device.
Tensor positions(const Operands& o, std::initializer_list<std::int64_t> list) {
  return tensor(std::vector<std::int64_t>(list), {.device = o.place});
}
Tensor mask_of(const Operands& o, std::int64_t size) {
  return ones({size}, {.dtype = bool_, .device = o.place});
}

std::vector<BadInput> bad_index_lists() {
  return {
      {"index", "InvalidArgument",
       "index: expected a defined tensor for argument 'index', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.a.index({o.undefined})); }},
      {"index", "IndexError",
       "index: tensors used as indices must be long, int, byte or bool tensors, but got Float",
       [](Operands& o) { static_cast<void>(o.a.index({o.vector})); }},
      {"index", "IndexError", "index: too many indices for tensor of dimension 2",
       [](Operands& o) {
         static_cast<void>(o.a.index({positions(o, {0}), positions(o, {0}), positions(o, {0})}));
       }},
      {"index", "IndexError", "index: too many indices for tensor of dimension 2",
       [](Operands& o) {
         static_cast<void>(o.a.index({o.mask, 0}));
       }},
      {"index", "IndexError",
       "index: The shape of the mask [4] at index 0 does not match the shape of the indexed tensor "
       "[2, 3] at index 0",
       [](Operands& o) { static_cast<void>(o.a.index({mask_of(o, 4)})); }},
      {"index", "IndexError",
       "index: The shape of the mask [2] at index 0 does not match the shape of the indexed tensor "
       "[2, 3] at index 1",
       [](Operands& o) {
         static_cast<void>(o.a.index({Slice(), mask_of(o, 2)}));
       }},
      {"index", "IndexError",
       "index: shape mismatch: indexing tensors could not be broadcast together with shapes [2], "
       "[3]",
       [](Operands& o) {
         static_cast<void>(o.a.index({positions(o, {0, 1}), positions(o, {0, 1, 2})}));
       }},
      {"index", "IndexError",
       "index: shape mismatch: indexing tensors could not be broadcast together with shapes [2], "
       "[3]",
       [](Operands& o) {
         static_cast<void>(o.a.index({mask_of(o, 2), positions(o, {0, 1, 2})}));
       }},
      {"index", "IndexError", "index: index 5 is out of bounds for dimension 1 with size 3",
       [](Operands& o) {
         static_cast<void>(o.a.index({positions(o, {0}), 5}));
       }},
      {"index", "IndexError", "index: index -3 is out of bounds for dimension 0 with size 2",
       [](Operands& o) {
         static_cast<void>(o.a.index({positions(o, {-3}).view({}), mask_of(o, 3)}));
       }},
      {"index", "IndexError", "index: index is out of bounds for dimension with size 0",
       [](Operands& o) { static_cast<void>(o.a.slice(0, 0, 0).index({positions(o, {0})})); }},
      {"index", "DeviceMismatchError",
       "index: indices should be either on cpu or on the same device as the indexed tensor "
       "(cuda:0), but got cuda:1",
       [](Operands& o) {
         static_cast<void>(o.a.index({zeros({1}, {.dtype = i64, .device = Device::cuda(1)})}));
       },
       2},
      {"index_put_", "DTypeError",
       "index_put_: Index put requires the source and destination dtypes match, got Float for the "
       "destination and Long for the source.",
       [](Operands& o) { o.a.index_put_({positions(o, {0})}, o.integers[0]); }},
      {"index_put_", "DTypeError", "got Float for the destination and Double for the source.",
       [](Operands& o) { o.a.index_put_({o.mask}, scalar_tensor(1, {.dtype = f64})); }},
      {"index_put_", "InvalidArgument",
       "index_put_: value cannot be converted to type i64 without overflow, got 1e+300",
       [](Operands& o) { o.integers.index_put_({positions(o, {0})}, 1e300); }},
      {"index_put_", "ShapeError",
       "index_put_: shape mismatch: value tensor of shape [4] cannot be broadcast to indexing "
       "result of shape [2, 3]",
       [](Operands& o) {
         o.a.index_put_({positions(o, {0, 1})}, o.vector);
       }},
      {"index_put_", "InvalidArgument",
       "index_put_: unsupported operation: more than one element of the written-to tensor refers "
       "to "
       "a single memory location. Please clone() the tensor before performing the operation.",
       [](Operands& o) { o.repeated.index_put_({positions(o, {0})}, 1); }},
      {"index_put_", "InvalidArgument", "more than one element of the written-to tensor",
       [](Operands& o) { o.repeated.index_put_({o.mask}, 1); }},
      {"index_put_", "InvalidArgument",
       "index_put_: unsupported operation: some elements of the input tensor and the written-to "
       "tensor refer to a single memory location.",
       [](Operands& o) {
         o.a.index_put_({positions(o, {0, 1})}, o.a);
       }},
      {"index_put_", "InvalidArgument", "some elements of the input tensor",
       [](Operands& o) { o.integers.index_put_({o.integers[0].slice(0, 0, 2)}, 1); }},
      {"index_put_", "DeviceMismatchError",
       "found at least two devices, cuda:0 and cpu! (when checking argument value in index_put_)",
       [](Operands& o) { o.a.index_put_({positions(o, {0})}, ones({3})); }, 1},
      {"index_put", "ShapeError", "value tensor of shape [4] cannot be broadcast",
       [](Operands& o) {
         static_cast<void>(index_put(o.a, {positions(o, {0, 1})}, o.vector));
       }},
      {"operator", "InvalidArgument",
       "operator=: expected a view, but got a copy, because an index is a tensor; write with "
       "index_put_",
       [](Operands& o) { o.a.index({positions(o, {0})}) = o.a[0]; }},
      {"operator", "InvalidArgument", "operator=: expected a view, but got a copy",
       [](Operands& o) { o.a.index({o.mask}) = 2.0; }},
  };
}

std::vector<BadInput> bad_index_functions() {
  return {
      {"take", "DTypeError", "take(): Expected dtype int32 or int64 for index, but got Float",
       [](Operands& o) { static_cast<void>(take(o.a, o.vector)); }},
      {"take", "IndexError", "take(): tried to take from an empty tensor",
       [](Operands& o) { static_cast<void>(take(o.a.slice(0, 0, 0), positions(o, {0}))); }},
      {"take_along_dim", "ShapeError",
       "take_along_dim(): input and indices should have the same number of dimensions, but got 2 "
       "dimensions for input, and 1 dimensions for indices",
       [](Operands& o) { static_cast<void>(take_along_dim(o.a, positions(o, {0}), 0)); }},
      {"take_along_dim", "ShapeError",
       "take_along_dim: The size of tensor a (3) must match the size of tensor b (2) at "
       "non-singleton dimension 1",
       [](Operands& o) {
         static_cast<void>(take_along_dim(o.a, positions(o, {0, 1}).view({1, 2}), 0));
       }},
      {"put", "ShapeError",
       "put(): Expected source and index to have the same number of elements, but got "
       "source.numel() = 4, index.numel() = 1",
       [](Operands& o) { static_cast<void>(put(o.a, positions(o, {0}), o.vector)); }},
      {"put", "DTypeError", "Expected self.dtype to be equal to src.dtype, but got Float and Long",
       [](Operands& o) { static_cast<void>(put(o.a, positions(o, {0}), positions(o, {0}))); }},
      {"scatter", "InvalidArgument",
       "scatter: reduce argument must be either add or multiply, but got sum",
       [](Operands& o) { static_cast<void>(scatter(o.a, 0, zeros_like(o.integers), o.a, "sum")); }},
      {"scatter_reduce", "InvalidArgument",
       "scatter_reduce: reduce argument must be either sum, prod, mean, amax or amin, but got add",
       [](Operands& o) {
         static_cast<void>(scatter_reduce(o.a, 0, zeros_like(o.integers), o.a, "add"));
       }},
      {"index_add", "ShapeError",
       "index_add(): Index is supposed to be a vector, but got dim: 2 with shape [2, 3]",
       [](Operands& o) { static_cast<void>(index_add(o.a, 0, o.integers, o.a)); }},
      {"index_add", "ShapeError",
       "index_add(): Number of indices (1) should be equal to source.size(dim): (2), for dim: 0",
       [](Operands& o) { static_cast<void>(index_add(o.a, 0, positions(o, {0}), o.a)); }},
      {"index_add", "ShapeError",
       "index_add(): source tensor shape must match self tensor shape, excluding the specified "
       "dimension. Got self.shape = [2, 3] source.shape = [4]",
       [](Operands& o) { static_cast<void>(index_add(o.a, 0, positions(o, {0}), o.vector)); }},
      {"index_add", "DTypeError",
       "index_add: For integral input tensors, argument alpha must not be a floating point number.",
       [](Operands& o) {
         static_cast<void>(index_add(o.integers, 0, positions(o, {0, 1}), o.integers, 1.5));
       }},
      {"index_copy", "IndexError",
       "index_copy: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
       [](Operands& o) { static_cast<void>(index_copy(o.a, 2, positions(o, {0}), o.a)); }},
      {"index_fill", "ShapeError",
       "index_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 "
       "dimension(s).",
       [](Operands& o) { static_cast<void>(index_fill(o.a, 0, positions(o, {0}), o.vector)); }},
      {"index_fill", "InvalidArgument",
       "index_fill: value cannot be converted to type i64 without overflow, got 1e+300",
       [](Operands& o) { static_cast<void>(index_fill(o.integers, 0, positions(o, {0}), 1e300)); }},
      {"index_reduce", "InvalidArgument",
       "index_reduce: reduce argument must be either prod, mean, amax or amin, but got sum",
       [](Operands& o) {
         static_cast<void>(index_reduce(o.a, 0, positions(o, {0, 1}), o.a, "sum"));
       }},
      {"nonzero", "InvalidArgument",
       "nonzero: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(nonzero(o.undefined)); }},
      {"masked_select", "DTypeError", "masked_select: expected BoolTensor for mask, but got Float",
       [](Operands& o) { static_cast<void>(masked_select(o.a, o.a)); }},
      {"masked_select", "ShapeError",
       "masked_select: The size of tensor a (3) must match the size of tensor b (4) at "
       "non-singleton dimension 1",
       [](Operands& o) { static_cast<void>(masked_select(o.a, mask_of(o, 4))); }},
      {"masked_select", "ShapeError",
       "masked_select: output with shape [4] doesn't match the broadcast shape [0]",
       [](Operands& o) { masked_select_out(o.vector, o.a, o.mask); }},
      {"masked_scatter", "ShapeError",
       "masked_scatter: Number of elements of source < number of ones in mask: 4 < 6",
       [](Operands& o) { static_cast<void>(masked_scatter(o.a, mask_of(o, 3), o.vector)); }},
      {"masked_scatter", "DTypeError", "masked_scatter: only supports boolean masks, but got Float",
       [](Operands& o) { static_cast<void>(masked_scatter(o.a, o.a, o.vector)); }},
      {"masked_scatter", "DTypeError",
       "Expected self.dtype to be equal to src.dtype, but got Float and Long",
       [](Operands& o) { static_cast<void>(masked_scatter(o.a, o.mask, o.integers)); }},
  };
}

}  // namespace

std::vector<BadInput> bad_index_inputs() {
  std::vector<BadInput> rows = bad_index_lists();
  for (const BadInput& row : bad_index_functions()) rows.push_back(row);
  return rows;
}

}  // namespace gantry::testing
