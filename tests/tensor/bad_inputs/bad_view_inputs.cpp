#include "tests/tensor/bad_inputs/bad_inputs.hpp"

namespace gantry::testing {

std::vector<BadInput> bad_view_inputs() {
  return {
      {"view", "InvalidArgument",
       "view: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.view({2})); }},
      {"view", "ShapeError", "view: shape '[4, 2]' is invalid for input of size 6",
       [](Operands& o) {
         static_cast<void>(o.a.view({4, 2}));
       }},
      {"view", "ShapeError",
       "view: view size is not compatible with input tensor's size and stride (at least one "
       "dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
       [](Operands& o) { static_cast<void>(o.a.t().view({6})); }},
      {"view", "ShapeError",
       "view: self.size(-1) must be divisible by 2 to view Float as Double (different element "
       "sizes), but got 3",
       [](Operands& o) { static_cast<void>(o.a.view(f64)); }},
      {"view", "ShapeError",
       "view: self.stride(-1) must be 1 to view Float as Short (different element sizes), but got "
       "3",
       [](Operands& o) { static_cast<void>(o.a.t().view(i16)); }},
      {"view", "ShapeError", "view: self.dim() cannot be 0 to view Float as Byte",
       [](Operands& o) { static_cast<void>(o.scalar.view(u8)); }},
      {"reshape", "ShapeError", "reshape: shape '[-1, 4]' is invalid for input of size 6",
       [](Operands& o) {
         static_cast<void>(o.a.reshape({-1, 4}));
       }},
      {"reshape", "InvalidArgument",
       "reshape: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.reshape({2})); }},
      {"transpose", "IndexError",
       "transpose: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
       [](Operands& o) { static_cast<void>(o.a.transpose(0, 2)); }},
      {"transpose", "InvalidArgument",
       "transpose: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.transpose(0, 1)); }},
      {"t", "ShapeError", "t: expects a tensor with <= 2 dimensions, but self is 3D",
       [](Operands& o) { static_cast<void>(o.a.unsqueeze(0).t()); }},
      {"permute", "ShapeError", "input.dim() = 2 is not equal to len(dims) = 1",
       [](Operands& o) { static_cast<void>(o.a.permute({0})); }},
      {"permute", "ShapeError", "permute: duplicate dims are not allowed, but got [0, -2]",
       [](Operands& o) {
         static_cast<void>(o.a.permute({0, -2}));
       }},
      {"movedim", "ShapeError",
       "movedim: Invalid source or destination dims: source ([0] dims) should contain the same "
       "number of dims as destination ([0, 1] dims)",
       [](Operands& o) {
         static_cast<void>(o.a.movedim(0, {0, 1}));
       }},
      {"movedim", "InvalidArgument", "movedim: dim 0 appears multiple times in the list of dims",
       [](Operands& o) {
         static_cast<void>(o.a.movedim({0, 0}, {0, 1}));
       }},
      {"slice", "IndexError", "slice: slice step cannot be zero",
       [](Operands& o) { static_cast<void>(o.a.slice(0, 0, 1, 0)); }},
      {"slice", "IndexError", "slice: step must be greater than zero, but got -1",
       [](Operands& o) { static_cast<void>(o.a.slice(0, 0, 1, -1)); }},
      {"slice", "IndexError",
       "slice: Dimension out of range (expected to be in range of [-2, 1], but got -3)",
       [](Operands& o) { static_cast<void>(o.a.slice(-3, 0, 1)); }},
      {"slice", "IndexError", "slice: cannot be applied to a 0-dim tensor",
       [](Operands& o) { static_cast<void>(o.scalar.slice(0)); }},
      {"narrow", "ShapeError", "narrow: start (1) + length (2) exceeds dimension size (2).",
       [](Operands& o) { static_cast<void>(o.a.narrow(0, 1, 2)); }},
      {"narrow", "ShapeError", "narrow: length must be non-negative, but got -1",
       [](Operands& o) { static_cast<void>(o.a.narrow(0, 1, -1)); }},
      {"narrow", "IndexError",
       "narrow: start out of range (expected to be in range of [-2, 2], but got 3)",
       [](Operands& o) { static_cast<void>(o.a.narrow(0, 3, 0)); }},
      {"select", "IndexError", "select: index 2 is out of bounds for dimension 0 with size 2",
       [](Operands& o) { static_cast<void>(o.a.select(0, 2)); }},
      {"select", "IndexError", "select: index -4 is out of bounds for dimension 1 with size 3",
       [](Operands& o) { static_cast<void>(o.a.select(1, -4)); }},
      {"operator", "IndexError", "index 5 is out of bounds for dimension 0 with size 2",
       [](Operands& o) { static_cast<void>(o.a[5]); }},
      {"select", "InvalidArgument",
       "select: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined[0]); }},
      {"squeeze", "IndexError", "squeeze: Dimension out of range",
       [](Operands& o) { static_cast<void>(o.a.squeeze(7)); }},
      {"unsqueeze", "IndexError",
       "unsqueeze: Dimension out of range (expected to be in range of [-3, 2], but got 3)",
       [](Operands& o) { static_cast<void>(o.a.unsqueeze(3)); }},
      {"flatten", "ShapeError", "flatten: start_dim cannot come after end_dim, but got 1 and 0",
       [](Operands& o) { static_cast<void>(o.a.flatten(1, 0)); }},
      {"unflatten", "ShapeError", "unflatten: shape '[2, 2]' is invalid for input of size 3",
       [](Operands& o) {
         static_cast<void>(o.a.unflatten(1, {2, 2}));
       }},
      {"expand", "ShapeError",
       "expand: The expanded size of the tensor (4) must match the existing size (3) at "
       "non-singleton dimension 1. Target sizes: [2, 4]. Tensor sizes: [2, 3]",
       [](Operands& o) {
         static_cast<void>(o.a.expand({2, 4}));
       }},
      {"expand", "ShapeError",
       "expand: the number of sizes provided (1) must be greater or equal to the number of "
       "dimensions in the tensor (2)",
       [](Operands& o) { static_cast<void>(o.a.expand({3})); }},
      {"expand", "ShapeError",
       "expand: The expanded size of the tensor (-1) isn't allowed in a leading, non-existing "
       "dimension 0",
       [](Operands& o) {
         static_cast<void>(o.a.expand({-1, 2, 3}));
       }},
      {"expand_as", "InvalidArgument",
       "expand_as: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.a.expand_as(o.undefined)); }},
      {"diagonal", "ShapeError", "diagonal: diagonal dimensions cannot be identical 0, -2",
       [](Operands& o) { static_cast<void>(o.a.diagonal(0, 0, -2)); }},
      {"diagonal", "IndexError", "diagonal: Dimension out of range",
       [](Operands& o) { static_cast<void>(o.vector.diagonal()); }},
      {"unfold", "ShapeError", "unfold: maximum size for tensor at dimension 1 is 3 but size is 4",
       [](Operands& o) { static_cast<void>(o.a.unfold(1, 4, 1)); }},
      {"unfold", "ShapeError", "unfold: step is 0 but must be > 0",
       [](Operands& o) { static_cast<void>(o.a.unfold(1, 2, 0)); }},
      {"unfold", "ShapeError", "unfold: size is -1 but must be >= 0",
       [](Operands& o) { static_cast<void>(o.a.unfold(1, -1, 1)); }},
      {"as_strided", "ShapeError",
       "as_strided: sizes [7], strides [1], storage offset 0 and itemsize 4 are out of bounds for "
       "storage of size 24",
       [](Operands& o) { static_cast<void>(o.a.as_strided({7}, {1})); }},
      {"as_strided", "ShapeError", "are out of bounds for storage of size 24",
       [](Operands& o) { static_cast<void>(o.a.as_strided({1}, {1}, -1)); }},
      {"as_strided", "ShapeError", "as_strided: Negative strides are not supported",
       [](Operands& o) { static_cast<void>(o.a.as_strided({2}, {-1})); }},
      {"split", "ShapeError",
       "split: split expects split_size be non-negative, but got split_size=-1",
       [](Operands& o) { static_cast<void>(o.a.split(-1)); }},
      {"split", "ShapeError",
       "split: split_size can only be 0 if dimension size is 0, but got dimension size of 2",
       [](Operands& o) { static_cast<void>(o.a.split(0)); }},
      {"split", "ShapeError",
       "sum exactly to 3 (input tensor's size at dimension 1), but got split_sizes=[1, 1]",
       [](Operands& o) {
         static_cast<void>(o.a.split({1, 1}, 1));
       }},
      {"split", "ShapeError", "but got split_sizes=[4, -1]",
       [](Operands& o) {
         static_cast<void>(o.a.split({4, -1}, 1));
       }},
      {"chunk", "InvalidArgument", "chunk: chunk expects `chunks` to be greater than 0, got: 0",
       [](Operands& o) { static_cast<void>(o.a.chunk(0)); }},
      {"tensor_split", "InvalidArgument",
       "tensor_split: number of sections must be larger than 0, got -1",
       [](Operands& o) { static_cast<void>(tensor_split(o.a, -1)); }},
      {"unbind", "IndexError", "unbind: cannot be applied to a 0-dim tensor",
       [](Operands& o) { static_cast<void>(o.scalar.unbind()); }},
      {"index", "IndexError", "index: index 2 is out of bounds for dimension 0 with size 2",
       [](Operands& o) { static_cast<void>(o.a.index({2})); }},
      {"index", "IndexError", "index: too many indices for tensor of dimension 2",
       [](Operands& o) {
         static_cast<void>(o.a.index({0, 0, 0}));
       }},
      {"index", "InvalidArgument",
       "index: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.index({0})); }},
      {"index_put_", "DeviceMismatchError",
       "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
       "cuda:1! (when checking argument value in index_put_)",
       [](Operands& o) { static_cast<void>(o.a.index_put_({0}, o.scalar.to("cuda:1"))); }, 2},
      {"index_put_", "DeviceMismatchError", "found at least two devices, cuda:0 and cpu!",
       [](Operands& o) { static_cast<void>(o.a.index_put_({0}, ones({3}))); }, 1},
      {"index_put_", "IndexError",
       "index_put_: index 3 is out of bounds for dimension 1 with size 3",
       [](Operands& o) {
         static_cast<void>(o.a.index_put_({0, 3}, 1));
       }},
      {"index_put_", "ShapeError",
       "index_put_: output with shape [3] doesn't match the broadcast shape [2, 3]",
       [](Operands& o) { static_cast<void>(o.a.index_put_({0}, o.a.neg())); }},
      {"index_put_", "ShapeError", "index_put_: output with shape [3] doesn't match the broadcast",
       [](Operands& o) { static_cast<void>(o.a.index_put_({0}, o.a.neg(), true)); }},
      {"index_put_", "InvalidArgument",
       "index_put_: unsupported operation: more than one element of the written-to tensor",
       [](Operands& o) { static_cast<void>(o.repeated.index_put_({Slice()}, 1)); }},
      {"flip", "InvalidArgument", "flip: dim 1 appears multiple times in the list of dims",
       [](Operands& o) {
         static_cast<void>(o.a.flip({1, -1}));
       }},
      {"roll", "ShapeError", "roll: shifts and dimensions must align. shifts: 2, dims:1",
       [](Operands& o) {
         static_cast<void>(o.a.roll({1, 2}, 0));
       }},
      {"roll", "InvalidArgument", "roll: `shifts` required",
       [](Operands& o) { static_cast<void>(o.a.roll({})); }},
      {"repeat", "ShapeError",
       "repeat: Number of dimensions of repeat dims can not be smaller than number of dimensions "
       "of tensor, but got 1 and 2",
       [](Operands& o) { static_cast<void>(o.a.repeat({2})); }},
      {"repeat", "ShapeError", "repeat: Trying to create tensor with negative dimension -1",
       [](Operands& o) {
         static_cast<void>(o.a.repeat({1, -1}));
       }},
      {"repeat_interleave", "InvalidArgument",
       "repeat_interleave: repeats must be non-negative, but got -2",
       [](Operands& o) { static_cast<void>(repeat_interleave(o.a, -2)); }},
      {"cat", "InvalidArgument", "cat: expected a non-empty list of Tensors",
       [](Operands&) { static_cast<void>(cat({})); }},
      {"cat", "ShapeError",
       "cat: Sizes of tensors must match except in dimension 0. Expected size 3 but got size 2 for "
       "tensor number 1 in the list.",
       [](Operands& o) {
         static_cast<void>(cat({o.a, o.a.t()}));
       }},
      {"cat", "InvalidArgument", "cat: expected a defined tensor for argument 'tensors[1]'",
       [](Operands& o) {
         static_cast<void>(cat({o.a, o.undefined}));
       }},
      {"cat", "DeviceMismatchError",
       "found at least two devices, cuda:0 and cpu! (when checking argument tensors[1] in cat)",
       [](Operands& o) {
         static_cast<void>(cat({o.a, zeros({2, 3})}));
       },
       1},
      {"stack", "ShapeError",
       "stack: stack expects each tensor to be equal size, but got [2, 3] at entry 0 and [4] at "
       "entry 1",
       [](Operands& o) {
         static_cast<void>(stack({o.a, o.vector}));
       }},
      {"broadcast_tensors", "ShapeError",
       "broadcast_tensors: The size of tensor a (3) must match the size of tensor b (4) at "
       "non-singleton dimension 1",
       [](Operands& o) {
         static_cast<void>(broadcast_tensors({o.a, o.vector}));
       }},
      {"broadcast_shapes", "ShapeError",
       "broadcast_shapes: The size of tensor a (2) must match the size of tensor b (3) at "
       "non-singleton dimension 0",
       [](Operands&) { static_cast<void>(broadcast_shapes({2}, {3})); }, 0, true},
  };
}

}  // namespace gantry::testing
