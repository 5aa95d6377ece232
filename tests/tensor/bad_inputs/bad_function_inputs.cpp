// Bad arguments of the special functions, activations, contractions, statistics, rearrangements,
// distributions and outputs.
#include <gantry/core/error.hpp>
#include <gantry/tensor/activations.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/index_plan.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/rearrangements.hpp>
#include <gantry/tensor/sorting.hpp>
#include <gantry/tensor/special_functions.hpp>
#include <gantry/tensor/statistics.hpp>

#include "tests/tensor/bad_inputs/bad_inputs.hpp"

namespace gantry::testing {

namespace {

using Unary = Tensor (*)(const Tensor&);
using UnaryOut = Tensor& (*)(Tensor&, const Tensor&);
using Binary = Tensor (*)(const Operand&, const Operand&);
using BinaryOut = Tensor& (*)(Tensor&, const Operand&, const Operand&);

template <class Function, class Output>
struct Named {
  const char* name;
  Function function;
  Output output;
};

// What every function of one tensor refuses.
void add_unary(std::vector<BadInput>& rows, const Named<Unary, UnaryOut>& f) {
  const std::string out_name = std::string(f.name) + "_out";
  rows.push_back({f.name, "InvalidArgument", "expected a defined tensor",
                  [=](Operands& o) { static_cast<void>(f.function(o.undefined)); }});
  rows.push_back({out_name, "InvalidArgument", "expected a defined tensor",
                  [=](Operands& o) { f.output(o.undefined, o.a); }});
  rows.push_back({out_name, "ShapeError",
                  "output with shape [4] doesn't match the broadcast shape [2, 3]",
                  [=](Operands& o) { f.output(o.vector, o.a); }});
  rows.push_back({out_name, "InvalidArgument",
                  "more than one element of the written-to tensor refers to a single memory "
                  "location",
                  [=](Operands& o) { f.output(o.repeated, o.a); }});
  rows.push_back({out_name, "InvalidArgument",
                  "some elements of the input tensor and the written-to tensor refer to a single "
                  "memory location",
                  [=](Operands& o) {
                    Tensor out = o.vector.narrow(0, 0, 3);
                    f.output(out, o.vector.narrow(0, 1, 3));
                  }});
  rows.push_back({out_name, "DeviceMismatchError", "found at least two devices, cuda:1 and cuda:0!",
                  [=](Operands& o) {
                    Tensor out = empty({2, 3}, {.dtype = f32, .device = Device::cuda(1)});
                    f.output(out, o.a);
                  },
                  2});
}

// What every function of two tensors refuses.
void add_binary(std::vector<BadInput>& rows, const Named<Binary, BinaryOut>& f) {
  const std::string out_name = std::string(f.name) + "_out";
  rows.push_back({f.name, "InvalidArgument", "expected a defined tensor for argument '",
                  [=](Operands& o) { static_cast<void>(f.function(o.a, o.undefined)); }});
  rows.push_back({f.name, "ShapeError",
                  "The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
                  "dimension 1",
                  [=](Operands& o) { static_cast<void>(f.function(o.a, o.vector)); }});
  rows.push_back({f.name, "DeviceMismatchError", "found at least two devices, cuda:0 and cuda:1!",
                  [=](Operands& o) { static_cast<void>(f.function(o.a, o.a.to(Device::cuda(1)))); },
                  2});
  rows.push_back({f.name, "DeviceMismatchError", "found at least two devices, cuda:0 and cpu!",
                  [=](Operands& o) { static_cast<void>(f.function(o.a, o.a.cpu())); }, 1});
  rows.push_back({out_name, "ShapeError",
                  "output with shape [4] doesn't match the broadcast shape [2, 3]",
                  [=](Operands& o) { f.output(o.vector, o.a, o.a); }});
  rows.push_back({out_name, "InvalidArgument", "refers to a single memory location",
                  [=](Operands& o) { f.output(o.repeated, o.a, o.a); }});
}

std::vector<BadInput> elementwise_rows() {
  std::vector<BadInput> rows;
#define GANTRY_NAMED(name)                                                                         \
  {                                                                                                \
#name, [](const Tensor& t) { return name(t); }, [](Tensor & out, const Tensor& t)              \
                                                         -> Tensor& { return name##_out(out, t); } \
  }
  const Named<Unary, UnaryOut> unary[] = {
      GANTRY_NAMED(asinh),      GANTRY_NAMED(acosh),       GANTRY_NAMED(atanh),
      GANTRY_NAMED(erfc),       GANTRY_NAMED(exp2),        GANTRY_NAMED(sinc),
      GANTRY_NAMED(deg2rad),    GANTRY_NAMED(rad2deg),     GANTRY_NAMED(softplus),
      GANTRY_NAMED(leaky_relu), GANTRY_NAMED(log_sigmoid), GANTRY_NAMED(elu),
      GANTRY_NAMED(selu),       GANTRY_NAMED(celu),        GANTRY_NAMED(gelu_tanh),
      GANTRY_NAMED(hardtanh),   GANTRY_NAMED(relu6),       GANTRY_NAMED(nan_to_num)};
#undef GANTRY_NAMED
  for (const auto& function : unary) add_unary(rows, function);
#define GANTRY_NAMED(name, convert)                                                       \
  {                                                                                       \
#name, [](const Operand& a, const Operand& b) { return name(convert(a), convert(b)); }, \
        [](Tensor& out, const Operand& a, const Operand& b) -> Tensor& {           \
          return name##_out(out, convert(a), convert(b));                          \
        } \
  }
#define GANTRY_TENSOR(operand) ((operand).tensor())
#define GANTRY_OPERAND(operand) (operand)
  const Named<Binary, BinaryOut> binary[] = {
      GANTRY_NAMED(logaddexp, GANTRY_OPERAND), GANTRY_NAMED(logaddexp2, GANTRY_OPERAND),
      GANTRY_NAMED(hypot, GANTRY_OPERAND),     GANTRY_NAMED(xlogy, GANTRY_OPERAND),
      GANTRY_NAMED(copysign, GANTRY_OPERAND),  GANTRY_NAMED(nextafter, GANTRY_OPERAND),
      GANTRY_NAMED(ldexp, GANTRY_OPERAND),     GANTRY_NAMED(heaviside, GANTRY_TENSOR)};
#undef GANTRY_OPERAND
#undef GANTRY_TENSOR
#undef GANTRY_NAMED
  for (const auto& function : binary) add_binary(rows, function);
  for (const char* name : {"softplus", "log_sigmoid", "leaky_relu", "elu", "gelu_tanh"}) {
    const std::string op = name;
    rows.push_back(
        {op, "DTypeError", op + ": expected a floating type, but got Long", [op](Operands& o) {
           const Tensor& t = o.integers;
           static_cast<void>(op == "softplus"      ? softplus(t)
                             : op == "log_sigmoid" ? log_sigmoid(t)
                             : op == "leaky_relu"  ? leaky_relu(t)
                             : op == "elu"         ? elu(t)
                                                   : gelu_tanh(t));
         }});
  }
  return rows;
}

std::vector<BadInput> product_rows() {
  return {
      {"einsum", "InvalidArgument", "einsum(): must provide at least one operand",
       [](Operands&) { static_cast<void>(einsum("i", std::vector<Tensor>{})); }},
      {"einsum", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) {
         static_cast<void>(einsum("ij,jk", {o.a, o.undefined}));
       }},
      {"einsum", "DTypeError", "einsum(): expected operands of one dtype",
       [](Operands& o) {
         static_cast<void>(einsum("ij,ij", {o.a, o.integers}));
       }},
      {"inner", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(inner(o.a, o.undefined)); }},
      {"tensordot", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(tensordot(o.undefined, o.a, 1)); }},
      {"vdot", "ShapeError", "1D tensors expected, but got 2D and 1D tensors",
       [](Operands& o) { static_cast<void>(vdot(o.a, o.vector)); }},
      {"kron", "InvalidArgument", "expected a defined tensor for argument 'other'",
       [](Operands& o) { static_cast<void>(kron(o.a, o.undefined)); }},
      {"addr", "ShapeError", "addr: Expected 1-D argument vec1 and vec2, but got 2-D and 1-D",
       [](Operands& o) { static_cast<void>(addr(o.a, o.a, o.vector)); }},
      {"addr_out", "ShapeError", "addr: expected an output of shape [4, 4], but got [2, 3]",
       [](Operands& o) { addr_out(o.a, o.scalar, o.vector, o.vector); }},
      {"chain_matmul", "InvalidArgument", "chain_matmul: expected at least one matrix",
       [](Operands&) { static_cast<void>(chain_matmul(std::vector<Tensor>{})); }},
      {"chain_matmul", "ShapeError", "shapes cannot be multiplied (2x3 and 2x3)",
       [](Operands& o) {
         static_cast<void>(chain_matmul({o.a, o.a}));
       }},
      {"addmm", "ShapeError", "addmm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
       [](Operands& o) { static_cast<void>(addmm(o.a, o.a, o.a)); }},
      {"addmm", "ShapeError", "addmm: mat2 must be a matrix, but got 1-D",
       [](Operands& o) { static_cast<void>(addmm(o.a, o.a, o.vector)); }},
      {"addmm", "DTypeError", "addmm: expected self and mat1 to have the same dtype",
       [](Operands& o) { static_cast<void>(addmm(o.integers, o.a, o.a.t())); }},
      {"addmm_out", "ShapeError", "addmm: expected an output of shape [2, 2], but got [2, 3]",
       [](Operands& o) { addmm_out(o.a, o.scalar, o.a, o.a.t()); }},
      {"addmm_activation", "InvalidArgument", "addmm_activation: expected an Activation, but got 7",
       [](Operands& o) {
         static_cast<void>(addmm_activation(o.a, o.a, o.a, static_cast<Activation>(7)));
       }},
      {"addmm_activation", "ShapeError", "addmm_activation: mat1 and mat2 shapes cannot be",
       [](Operands& o) { static_cast<void>(addmm_activation(o.a, o.a, o.a, Activation::relu)); }},
      {"addmm_activation_out", "DTypeError", "can't be cast to the desired output type Long",
       [](Operands& o) {
         Tensor out = o.integers.narrow(1, 0, 2);
         addmm_activation_out(out, o.scalar, o.a, o.a.t(), Activation::relu);
       }},
      {"baddbmm", "ShapeError", "baddbmm: batch1 must be a 3D tensor, but got 2-D",
       [](Operands& o) { static_cast<void>(baddbmm(o.a, o.a, o.a)); }},
      {"addmv", "ShapeError", "addmv: vec must be a vector, but got 2-D",
       [](Operands& o) { static_cast<void>(addmv(o.a, o.a, o.a)); }},
      {"linear", "ShapeError", "linear: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
       [](Operands& o) { static_cast<void>(linear(o.a, o.a.t())); }},
      {"linear", "InvalidArgument", "expected a defined tensor for argument 'weight'",
       [](Operands& o) { static_cast<void>(linear(o.a, o.undefined)); }},
      {"linear", "DeviceMismatchError", "found at least two devices, cuda:0 and cuda:1!",
       [](Operands& o) {
         static_cast<void>(linear(o.a, o.a, ones({2}, {.dtype = f32, .device = Device::cuda(1)})));
       },
       2},
      {"linear_out", "ShapeError", "linear: expected an output of shape [2, 2], but got [2, 3]",
       [](Operands& o) { linear_out(o.a, o.a, o.a); }},
  };
}

std::vector<BadInput> other_rows() {
  return {
      {"std_mean", "DTypeError", "Long",
       [](Operands& o) { static_cast<void>(std_mean(o.integers)); }},
      {"var_mean", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(var_mean(o.a, {.dims = 2})); }},
      {"aminmax", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(aminmax(o.a, 2)); }},
      {"nansum", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(nansum(o.undefined)); }},
      {"nanmean", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(nanmean(o.a, 2)); }},
      {"dist", "ShapeError", "The size of tensor a (3) must match the size of tensor b (4)",
       [](Operands& o) { static_cast<void>(dist(o.a, o.vector)); }},
      {"cumprod", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(o.a.cumprod(2)); }},
      {"log_softmax", "DTypeError", "Long",
       [](Operands& o) { static_cast<void>(o.integers.log_softmax(0)); }},
      {"logsumexp", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(o.a.logsumexp(2)); }},
      {"cummin", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(cummin(o.a, 2)); }},
      {"std_out", "ShapeError", "std: expected an output of shape [], but got [4]",
       [](Operands& o) { std_out(o.vector, o.a); }},
      {"logsumexp_out", "ShapeError", "expected an output of shape [2], but got [4]",
       [](Operands& o) { logsumexp_out(o.vector, o.a, 1); }},
      {"cumprod_out", "ShapeError", "expected an output of shape [2, 3], but got [4]",
       [](Operands& o) { cumprod_out(o.vector, o.a, 1); }},
      {"log_softmax_out", "ShapeError", "expected an output of shape [2, 3], but got [4]",
       [](Operands& o) { log_softmax_out(o.vector, o.a, 1); }},
      {"meshgrid", "InvalidArgument", "indexing",
       [](Operands& o) {
         static_cast<void>(meshgrid({o.vector, o.vector}, "no"));
       }},
      {"meshgrid", "DeviceMismatchError", "found at least two devices, cuda:0 and cpu!",
       [](Operands& o) {
         static_cast<void>(meshgrid({o.vector, o.vector.cpu()}));
       },
       1},
      {"dstack", "InvalidArgument", "expected a defined tensor for argument 'tensors[1]'",
       [](Operands& o) {
         static_cast<void>(dstack({o.a, o.undefined}));
       }},
      {"column_stack", "InvalidArgument", "expected a defined tensor for argument 'tensors[0]'",
       [](Operands& o) {
         static_cast<void>(column_stack({o.undefined, o.a}));
       }},
      {"hstack", "InvalidArgument", "expected a defined tensor for argument 'tensors[1]'",
       [](Operands& o) {
         static_cast<void>(hstack({o.a, o.undefined}));
       }},
      {"vstack", "InvalidArgument", "expected a defined tensor for argument 'tensors[1]'",
       [](Operands& o) {
         static_cast<void>(vstack({o.a, o.undefined}));
       }},
      {"block_diag", "ShapeError", "block_diag",
       [](Operands& o) {
         static_cast<void>(block_diag({o.a, o.a.unsqueeze(0)}));
       }},
      {"rot90", "IndexError", "Dimension out of range",
       [](Operands& o) {
         static_cast<void>(rot90(o.a, 1, {0, 2}));
       }},
      {"fliplr", "ShapeError", "fliplr", [](Operands& o) { static_cast<void>(fliplr(o.vector)); }},
      {"flipud", "ShapeError", "flipud", [](Operands& o) { static_cast<void>(flipud(o.scalar)); }},
      {"atleast_2d", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(atleast_2d(o.undefined)); }},
      {"argsort", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(argsort(o.a, 2)); }},
      {"msort", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(msort(o.undefined)); }},
      {"nanmedian", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(nanmedian(o.a, 2)); }},
      {"argwhere", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(argwhere(o.undefined)); }},
      {"scatter_add", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(scatter_add(o.a, 2, o.integers, o.a)); }},
      {"explain", "IndexError", "too many indices for tensor of dimension 1",
       [](Operands& o) {
         static_cast<void>(explain(o.vector, {1, 2}));
       }},
      {"explain_put", "IndexError", "index 5 is out of bounds for dimension 0 with size 4",
       [](Operands& o) { static_cast<void>(explain_put(o.vector, {5}, 1)); }},
      {"lerp", "ShapeError", "The size of tensor a (3) must match the size of tensor b (4)",
       [](Operands& o) { static_cast<void>(lerp(o.a, o.vector, 0.5)); }},
      {"addcmul", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(addcmul(o.a, o.undefined, o.a)); }},
      {"addcdiv", "DTypeError", "",
       [](Operands& o) { static_cast<void>(addcdiv(o.integers, o.integers, o.integers)); }},
      {"poisson", "DTypeError", "poisson: expected a floating type",
       [](Operands& o) { static_cast<void>(poisson(o.integers)); }},
      {"multinomial", "ShapeError", "multinomial: prob_dist must be 1 or 2 dim, but got 0",
       [](Operands& o) { static_cast<void>(multinomial(o.scalar, 1)); }},
      {"multinomial", "InvalidArgument", "cannot sample n_sample > prob_dist.size(-1) samples",
       [](Operands& o) { static_cast<void>(multinomial(o.vector, 5)); }},
      {"normal", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(normal(o.undefined, 1.0)); }},
      {"xlogy", "InvalidArgument", "expected at least one tensor, but got only numbers",
       [](Operands&) { static_cast<void>(xlogy(1.0, 2.0)); }},
      {"rand_shard", "IndexError", "start (3) + length (2) exceeds dimension size (4).",
       [](Operands& o) {
         static_cast<void>(rand_shard({4}, {0, 3, 2}, {.device = o.place}));
       }},
      {"randn_shard", "IndexError", "Dimension out of range",
       [](Operands& o) {
         static_cast<void>(randn_shard({4}, {1, 0, 2}, {.device = o.place}));
       }},
  };
}

}  // namespace

std::vector<BadInput> bad_function_inputs() {
  std::vector<BadInput> rows = elementwise_rows();
  for (const auto& part : {product_rows(), other_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace gantry::testing
