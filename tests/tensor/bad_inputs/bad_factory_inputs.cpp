#include <limits>

#include "tests/tensor/bad_inputs/bad_inputs.hpp"

namespace gantry::testing {

std::vector<BadInput> bad_factory_inputs() {
  return {
      {"empty", "ShapeError", "empty: Trying to create tensor with negative dimension -1: [2, -1]",
       [](Operands& o) {
         static_cast<void>(empty({2, -1}, {.device = o.place}));
       }},
      {"zeros", "ShapeError", "zeros: Trying to create tensor with negative dimension -1: [-1]",
       [](Operands& o) { static_cast<void>(zeros({-1}, {.device = o.place})); }},
      {"zeros", "ShapeError", "Expected at most 8 dimensions, but got 9",
       [](Operands& o) {
         static_cast<void>(zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}, {.device = o.place}));
       }},
      {"zeros", "ShapeError",
       "zeros: expected a shape of less than 2^63 elements, but got [4294967296, 4294967296]",
       [](Operands& o) {
         static_cast<void>(zeros({4294967296, 4294967296}, {.device = o.place}));
       }},
      {"zeros", "ShapeError", "zeros: expected a layout of less than 2^63 bytes",
       [](Operands& o) {
         static_cast<void>(zeros({4294967296, 2147483647}, {.dtype = i64, .device = o.place}));
       }},
      {"ones", "ShapeError", "ones: Trying to create tensor with negative dimension",
       [](Operands& o) { static_cast<void>(ones({-3}, {.device = o.place})); }},
      {"full", "ShapeError", "full: Trying to create tensor with negative dimension",
       [](Operands& o) { static_cast<void>(full({-3}, 1, {.device = o.place})); }},
      {"empty", "InvalidArgument",
       "empty: expected a CPU tensor for pinned memory, but got device cuda:0",
       [](Operands& o) { static_cast<void>(empty({2}, {.device = o.place, .pinned = true})); }, 1},
      {"empty", "InvalidArgument", "Invalid device string: 'gpu'",
       [](Operands& o) {
         static_cast<void>(empty({static_cast<std::int64_t>(o.a.dim())}, {.device = "gpu"}));
       }},
      {"empty", "InvalidArgument", "1000",
       [](Operands& o) {
         static_cast<void>(empty({static_cast<std::int64_t>(o.a.dim())}, {.device = "cuda:1000"}));
       },
       1},
      {"empty_strided", "ShapeError", "empty_strided: mismatch in length of strides and shape",
       [](Operands& o) {
         static_cast<void>(empty_strided({2, 3}, {1}, {.device = o.place}));
       }},
      {"empty_strided", "ShapeError",
       "empty_strided: Negative strides are not supported at the moment, got strides: [-1]",
       [](Operands& o) { static_cast<void>(empty_strided({2}, {-1}, {.device = o.place})); }},
      {"empty_like", "InvalidArgument",
       "empty_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(empty_like(o.undefined)); }},
      {"zeros_like", "InvalidArgument",
       "zeros_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(zeros_like(o.undefined)); }},
      {"ones_like", "InvalidArgument",
       "ones_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(ones_like(o.undefined)); }},
      {"full_like", "InvalidArgument",
       "full_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(full_like(o.undefined, 1)); }},
      {"new_empty", "InvalidArgument",
       "new_empty: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.new_empty({2})); }},
      {"new_full", "InvalidArgument",
       "new_full: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.new_full({2}, 1)); }},
      {"arange", "InvalidArgument", "arange: step must be nonzero, but got 0",
       [](Operands& o) { static_cast<void>(arange(0, 5, 0, {.device = o.place})); }},
      {"arange", "InvalidArgument", "arange: step must be nonzero, but got 0",
       [](Operands& o) {
         static_cast<void>(arange(0, 5, 0.5, {.dtype = i64, .device = o.place}));
       }},
      {"arange", "InvalidArgument",
       "arange: upper bound and lower bound inconsistent with step sign, but got 0 -> 5 by -1",
       [](Operands& o) { static_cast<void>(arange(0, 5, -1, {.device = o.place})); }},
      {"arange", "InvalidArgument", "arange: unsupported range: 0 -> inf",
       [](Operands& o) {
         static_cast<void>(arange(std::numeric_limits<double>::infinity(), {.device = o.place}));
       }},
      {"linspace", "InvalidArgument", "linspace: number of steps must be non-negative, but got -1",
       [](Operands& o) { static_cast<void>(linspace(0, 1, -1, {.device = o.place})); }},
      {"logspace", "InvalidArgument", "logspace: number of steps must be non-negative, but got -1",
       [](Operands& o) { static_cast<void>(logspace(0, 1, -1, 10, {.device = o.place})); }},
      {"eye", "ShapeError", "eye: Trying to create tensor with negative dimension -2: [-2, -2]",
       [](Operands& o) { static_cast<void>(eye(-2, {.device = o.place})); }},
      {"tril", "ShapeError", "tril: input tensor must have at least 2 dimensions, but got [4]",
       [](Operands& o) { static_cast<void>(tril(o.vector)); }},
      {"triu", "ShapeError", "triu: input tensor must have at least 2 dimensions, but got []",
       [](Operands& o) { static_cast<void>(triu(o.scalar)); }},
      {"tril", "InvalidArgument",
       "tril: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.tril()); }},
      {"from_blob", "InvalidArgument",
       "from_blob: expected memory for 4 elements, but got a null pointer",
       [](Operands& o) { static_cast<void>(from_blob(nullptr, {4}, {.device = o.place})); }},
      {"from_blob", "ShapeError", "from_blob: Trying to create tensor with negative dimension",
       [](Operands& o) { static_cast<void>(from_blob(o.a.data(), {-4}, {.device = o.place})); }},
      {"tensor", "ShapeError", "tensor: expected sequence of length 2 at dim 1 (got 1) in row 1",
       [](Operands& o) {
         static_cast<void>(tensor({{1, 2}, {3}}, {.device = o.place}));
       }},
      {"rand", "DTypeError", "rand: expected a floating type, but got Long",
       [](Operands& o) { static_cast<void>(rand({2}, {.dtype = i64, .device = o.place})); }},
      {"randn", "DTypeError", "randn: expected a floating type, but got Bool",
       [](Operands& o) { static_cast<void>(randn({2}, {.dtype = bool_, .device = o.place})); }},
      {"randint", "InvalidArgument", "expects 'from' to be less than 'to', but got from=5 >= to=5",
       [](Operands& o) { static_cast<void>(randint(5, 5, {2}, {.device = o.place})); }},
      {"randperm", "InvalidArgument", "randperm: n must be non-negative, got -1",
       [](Operands& o) { static_cast<void>(randperm(-1, {.device = o.place})); }},
      {"bernoulli", "DTypeError", "bernoulli: expected a floating type, but got Long",
       [](Operands& o) { static_cast<void>(bernoulli(o.integers)); }},
      {"bernoulli", "InvalidArgument",
       "bernoulli: expected a defined tensor for argument 'probability', but got an undefined "
       "tensor",
       [](Operands& o) { static_cast<void>(bernoulli(o.undefined)); }},
      {"normal_", "DTypeError", "normal_: expected a floating type, but got Long",
       [](Operands& o) { static_cast<void>(o.integers.normal_()); }},
      {"normal_", "InvalidArgument", "normal expects std >= 0.0, but found std -1",
       [](Operands& o) { static_cast<void>(o.a.normal_(0, -1)); }},
      {"uniform_", "InvalidArgument",
       "uniform_ expects to return a [from, to) range, but found from=1 > to=0",
       [](Operands& o) { static_cast<void>(o.a.uniform_(1, 0)); }},
      {"uniform_", "InvalidArgument",
       "more than one element of the written-to tensor refers to a single memory location",
       [](Operands& o) { static_cast<void>(o.repeated.uniform_()); }},
      {"normal_", "InvalidArgument",
       "normal_: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.normal_()); }},
      {"uniform_", "InvalidArgument",
       "uniform_: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.uniform_()); }},
      {"random_", "InvalidArgument",
       "random_: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.random_()); }},
      {"random_", "InvalidArgument",
       "random_: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.random_(0, 5)); }},
      {"bernoulli_", "InvalidArgument",
       "bernoulli_: expected a defined tensor for argument 'self', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(o.undefined.bernoulli_(0.5)); }},
      {"rand_like", "InvalidArgument",
       "rand_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(rand_like(o.undefined)); }},
      {"randn_like", "InvalidArgument",
       "randn_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(randn_like(o.undefined)); }},
      {"randint_like", "InvalidArgument",
       "randint_like: expected a defined tensor for argument 'other', but got an undefined tensor",
       [](Operands& o) { static_cast<void>(randint_like(o.undefined, 5)); }},
      {"uniform_", "InvalidArgument", "uniform_: from is out of bounds for Float, got -inf",
       [](Operands& o) {
         static_cast<void>(o.a.uniform_(-std::numeric_limits<double>::infinity(), 0));
       }},
      {"uniform_", "InvalidArgument", "uniform_: to is out of bounds for Float, got 1e+39",
       [](Operands& o) { static_cast<void>(o.a.uniform_(0, 1e39)); }},
      {"uniform_", "InvalidArgument",
       "uniform_: uniform_ expects to-from <= std::numeric_limits<Float>::max(), but found "
       "to=3e+38 "
       "and from=-3e+38 which result in to-from to exceed the limit",
       [](Operands& o) { static_cast<void>(o.a.uniform_(-3e38, 3e38)); }},
      {"random_", "InvalidArgument",
       "more than one element of the written-to tensor refers to a single memory location",
       [](Operands& o) { static_cast<void>(o.repeated.random_()); }},
  };
}

}  // namespace gantry::testing
