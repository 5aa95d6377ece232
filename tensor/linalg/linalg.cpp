#include <gantry/tensor/linalg.hpp>

#include <fmt/format.h>

#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/promote.hpp>

#include "kernels/linalg/gemm.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using detail::NamedTensor;

// The dtype's name in PyTorch's text for dtype mismatches.
std::string_view cpp_name(DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return "bool";
    case DType::u8:
      return "unsigned char";
    case DType::i8:
      return "signed char";
    case DType::i16:
      return "short";
    case DType::i32:
      return "int";
    case DType::i64:
      return "long";
    case DType::f16:
      return "half";
    case DType::bf16:
      return "bfloat16";
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::u16:
      return "unsigned short";
    case DType::u32:
      return "unsigned int";
    case DType::u64:
      return "unsigned long";
    case DType::f8e4m3:
      return "c10::Float8_e4m3fn";
    case DType::f8e5m2:
      return "c10::Float8_e5m2";
  }
  return "";
}

// Checks that the operands have one device and one floating dtype.
void check_operands(std::string_view op, const NamedTensor& a, const NamedTensor& b) {
  detail::common_device(op, {a, b});
  if (a.tensor.dtype() != b.tensor.dtype()) {
    throw DTypeError(fmt::format("{}: expected m1 and m2 to have the same dtype, but got: {} != {}",
                                 op, cpp_name(a.tensor.dtype()), cpp_name(b.tensor.dtype())),
                     a.tensor.device().str());
  }
  detail::check_computes(op, a.tensor);
  if (!is_floating_point(a.tensor.dtype())) {
    throw DTypeError(fmt::format("{}: expected tensors of a floating type, but got {}", op,
                                 torch_name(a.tensor.dtype())),
                     a.tensor.device().str());
  }
}

void check_dim(std::string_view op, const NamedTensor& operand, int ndim, std::string_view what) {
  if (operand.tensor.dim() != ndim) {
    throw ShapeError(fmt::format("{}: {} must be a {}, but got {}-D", op, operand.name, what,
                                 operand.tensor.dim()),
                     operand.tensor.device().str());
  }
}

void check_inner(std::string_view op, std::int64_t m, std::int64_t k1, std::int64_t k2,
                 std::int64_t n, Device device) {
  if (k1 != k2) {
    throw ShapeError(fmt::format("{}: mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
                                 op, m, k1, k2, n),
                     device.str());
  }
}

void check_addend(std::string_view op, const Tensor& self, const Tensor& product) {
  detail::common_device(op, {{"self", self}, {"mat1", product}});
  if (self.dtype() != product.dtype()) {
    throw DTypeError(
        fmt::format("{}: expected self and mat1 to have the same dtype, but got: {} != {}", op,
                    cpp_name(self.dtype()), cpp_name(product.dtype())),
        self.device().str());
  }
}

// The operation's name for its errors, the caller's output, if any, the operand whose device the
// result is on (null: the left factor), and what becomes of the product's elements.
struct Output {
  std::string_view op;
  Tensor* out = nullptr;
  const Tensor* local = nullptr;
  Activation activation = Activation::none;
};

// beta * c + alpha * a b of 3-D tensors with matching shapes, as a tensor of shape `sizes`. If beta
// is 0, c is not read; it may be undefined.
Tensor multiply(const Output& output, const Shape& sizes, const Tensor& a, const Tensor& b,
                const Tensor& c = {}, double beta = 0, double alpha = 1) {
  // The kernel may write over the addend, but over nothing else that it reads.
  const Tensor* const out_or_null = output.out;
  const bool in_place = out_or_null != nullptr && out_or_null->defined() && c.defined() &&
                        c.numel() == out_or_null->numel() && c.data() == out_or_null->data() &&
                        c.is_contiguous() && out_or_null->is_contiguous();
  const bool reads_c = c.defined() && beta != 0;
  const Tensor& local = output.local == nullptr ? a : *output.local;
  detail::Destination destination(output.op, output.out, sizes, a.dtype(), local,
                                  {&a, &b, reads_c && !in_place ? &c : nullptr});
  const Tensor out = destination.tensor().view({a.size(0), a.size(1), b.size(2)});
  kernels::gemm(detail::target_of(out), out.ref(), a.ref(), b.ref(),
                reads_c ? c.ref() : TensorRef{}, alpha, beta, output.activation);
  return destination.finish();
}

// self, broadcast to the product's shape. Throws ShapeError if that is impossible, also if beta is
// 0.
Tensor addend_for(std::string_view op, const Tensor& self, const Shape& sizes) {
  return self.expand(detail::expanded_sizes(op, self.sizes(), sizes, self.device()));
}

// beta * addend + alpha * a b, in the addend's shape; a and b are 3-D.
Tensor add_product(const Output& output, const Tensor& addend_in_shape, const Tensor& a,
                   const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  for (const Scalar& factor : {beta, alpha}) {
    detail::check_factor_fits(output.op, factor, a.dtype());
  }
  const Shape sizes = addend_in_shape.sizes();
  Tensor addend = addend_in_shape;
  if (sizes.size() == 1) addend = addend.unsqueeze(1);
  if (addend.dim() == 2) addend = addend.unsqueeze(0);
  return multiply(output, sizes, a, b, addend, beta.to<double>(), alpha.to<double>());
}

// The batch dims: all but the last two.
Shape batch_of(const Tensor& tensor) {
  Shape batch;
  for (int d = 0; d + 2 < tensor.dim(); ++d) batch.push_back(tensor.size(d));
  return batch;
}

Tensor batched(const Tensor& tensor, const Shape& batch) {
  Shape sizes = batch;
  sizes.push_back(tensor.size(-2));
  sizes.push_back(tensor.size(-1));
  return tensor.expand(sizes).reshape({batch.product(), tensor.size(-2), tensor.size(-1)});
}

Tensor run_matmul(const Tensor& a, const Tensor& b, Tensor* out) {
  const kernels::OpScope scope("matmul");
  check_operands("matmul", {"self", a}, {"other", b});
  if (a.dim() == 0 || b.dim() == 0) {
    throw ShapeError(
        fmt::format(
            "matmul: both arguments to matmul need to be at least 1D, but they are {}D and {}D",
            a.dim(), b.dim()),
        a.device().str());
  }
  // Vectors become matrices for the product. The added dim is removed from the result.
  const Tensor left = a.dim() == 1 ? a.unsqueeze(0) : a;
  const Tensor right = b.dim() == 1 ? b.unsqueeze(1) : b;
  check_inner("matmul", left.size(-2), left.size(-1), right.size(-2), right.size(-1), a.device());
  const Shape left_batch = batch_of(left);
  const Shape right_batch = batch_of(right);
  const Shape batch = detail::common_shape("matmul", {&left_batch, &right_batch}, a.device());

  Shape sizes = batch;
  if (a.dim() > 1) sizes.push_back(left.size(-2));
  if (b.dim() > 1) sizes.push_back(right.size(-1));
  if (right_batch.empty()) {
    // With a single matrix on the right, the batch dims of the left merge with its rows.
    const Tensor rows = left.reshape({batch.product() * left.size(-2), left.size(-1)});
    return multiply({"matmul", out}, sizes, rows.unsqueeze(0), right.unsqueeze(0));
  }
  return multiply({"matmul", out}, sizes, batched(left, batch), batched(right, batch));
}

Tensor run_mm(const Tensor& a, const Tensor& b, Tensor* out) {
  const kernels::OpScope scope("mm");
  check_operands("mm", {"self", a}, {"mat2", b});
  check_dim("mm", {"self", a}, 2, "matrix");
  check_dim("mm", {"mat2", b}, 2, "matrix");
  check_inner("mm", a.size(0), a.size(1), b.size(0), b.size(1), a.device());
  return multiply({"mm", out}, {a.size(0), b.size(1)}, a.unsqueeze(0), b.unsqueeze(0));
}

Tensor run_bmm(const Tensor& a, const Tensor& b, Tensor* out) {
  const kernels::OpScope scope("bmm");
  check_operands("bmm", {"batch1", a}, {"batch2", b});
  check_dim("bmm", {"batch1", a}, 3, "3D tensor");
  check_dim("bmm", {"batch2", b}, 3, "3D tensor");
  if (b.size(0) != a.size(0) || b.size(1) != a.size(2)) {
    throw ShapeError(
        fmt::format(
            "bmm: Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: "
            "[{}, {}].",
            a.size(0), a.size(2), b.size(0), b.size(1)),
        a.device().str());
  }
  return multiply({"bmm", out}, {a.size(0), a.size(1), b.size(2)}, a, b);
}

Tensor run_mv(const Tensor& matrix, const Tensor& vector, Tensor* out) {
  const kernels::OpScope scope("mv");
  check_operands("mv", {"self", matrix}, {"vec", vector});
  check_dim("mv", {"self", matrix}, 2, "matrix");
  check_dim("mv", {"vec", vector}, 1, "vector");
  check_inner("mv", matrix.size(0), matrix.size(1), vector.size(0), 1, matrix.device());
  return multiply({"mv", out}, {matrix.size(0)}, matrix.unsqueeze(0),
                  vector.unsqueeze(0).unsqueeze(2));
}

Tensor run_dot(const Tensor& a, const Tensor& b, Tensor* out) {
  const kernels::OpScope scope("dot");
  check_operands("dot", {"self", a}, {"tensor", b});
  if (a.dim() != 1 || b.dim() != 1) {
    throw ShapeError(
        fmt::format("dot: 1D tensors expected, but got {}D and {}D tensors", a.dim(), b.dim()),
        a.device().str());
  }
  if (a.numel() != b.numel()) {
    throw ShapeError(fmt::format("dot: inconsistent tensor size, expected tensor [{}] and src [{}] "
                                 "to have the same number "
                                 "of elements, but got {} and {} elements respectively",
                                 a.numel(), b.numel(), a.numel(), b.numel()),
                     a.device().str());
  }
  return multiply({"dot", out}, {}, a.unsqueeze(0).unsqueeze(0), b.unsqueeze(0).unsqueeze(2));
}

Tensor run_outer(const Tensor& a, const Tensor& b, Tensor* out) {
  const kernels::OpScope scope("outer");
  detail::common_device("outer", {{"self", a}, {"vec2", b}});
  check_dim("outer", {"self", a}, 1, "vector");
  check_dim("outer", {"vec2", b}, 1, "vector");
  detail::Destination destination("outer", out, {a.numel(), b.numel()}, result_type(a, b),
                                  {&a, &b});
  Tensor product = destination.tensor();
  mul_out(product, a.unsqueeze(1), b.unsqueeze(0));
  return destination.finish();
}

Tensor add_matrices(const Output& output, const Tensor& self, const Tensor& mat1,
                    const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  const std::string_view op = output.op;
  check_operands(op, {"mat1", mat1}, {"mat2", mat2});
  check_dim(op, {"mat1", mat1}, 2, "matrix");
  check_dim(op, {"mat2", mat2}, 2, "matrix");
  check_inner(op, mat1.size(0), mat1.size(1), mat2.size(0), mat2.size(1), mat1.device());
  check_addend(op, self, mat1);
  const Tensor addend = addend_for(op, self, {mat1.size(0), mat2.size(1)});
  return add_product(output, addend, mat1.unsqueeze(0), mat2.unsqueeze(0), beta, alpha);
}

Tensor run_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                 const Scalar& alpha, Tensor* out) {
  const kernels::OpScope scope("addmm");
  return add_matrices({"addmm", out, &self}, self, mat1, mat2, beta, alpha);
}

void check_activation(std::string_view op, Activation activation) {
  if (activation <= Activation::gelu_tanh) return;
  throw InvalidArgument(
      fmt::format("{}: expected an Activation, but got {}", op, static_cast<int>(activation)));
}

Tensor run_addmm_activation(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                            Activation activation, const Scalar& beta, const Scalar& alpha,
                            Tensor* out) {
  const kernels::OpScope scope("addmm_activation");
  check_activation("addmm_activation", activation);
  return add_matrices({"addmm_activation", out, &self, activation}, self, mat1, mat2, beta, alpha);
}

Tensor run_linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                  Activation activation, Tensor* out) {
  const kernels::OpScope scope("linear");
  constexpr std::string_view kOp = "linear";
  check_activation(kOp, activation);
  check_operands(kOp, {"input", input}, {"weight", weight});
  if (input.dim() == 0) {
    throw ShapeError("linear: expected an input of at least 1 dim, but got a 0-dim tensor",
                     input.device().str());
  }
  check_dim(kOp, {"weight", weight}, 2, "matrix");
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < input.dim(); ++d) rows *= input.size(d);
  const std::int64_t inner = input.size(-1);
  check_inner(kOp, rows, inner, weight.size(1), weight.size(0), input.device());
  Tensor addend;
  if (bias) {
    check_operands(kOp, {"input", input}, {"bias", *bias});
    check_dim(kOp, {"bias", *bias}, 1, "vector");
    addend = addend_for(kOp, *bias, {rows, weight.size(0)}).unsqueeze(0);
  }
  Shape sizes = input.sizes();
  sizes[input.dim() - 1] = weight.size(0);
  return multiply({kOp, out, &input, activation}, sizes, input.reshape({1, rows, inner}),
                  weight.t().unsqueeze(0), addend, bias ? 1 : 0);
}

Tensor run_baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                   const Scalar& beta, const Scalar& alpha, Tensor* out) {
  const kernels::OpScope scope("baddbmm");
  check_operands("baddbmm", {"batch1", batch1}, {"batch2", batch2});
  check_dim("baddbmm", {"batch1", batch1}, 3, "3D tensor");
  check_dim("baddbmm", {"batch2", batch2}, 3, "3D tensor");
  if (batch2.size(0) != batch1.size(0) || batch2.size(1) != batch1.size(2)) {
    throw ShapeError(fmt::format("baddbmm: Expected size for first two dimensions of batch2 tensor "
                                 "to be: [{}, {}] but got: "
                                 "[{}, {}].",
                                 batch1.size(0), batch1.size(2), batch2.size(0), batch2.size(1)),
                     batch1.device().str());
  }
  check_addend("baddbmm", self, batch1);
  const Shape sizes = {batch1.size(0), batch1.size(1), batch2.size(2)};
  return add_product({"baddbmm", out, &self}, addend_for("baddbmm", self, sizes), batch1, batch2,
                     beta, alpha);
}

Tensor run_addmv(const Tensor& self, const Tensor& matrix, const Tensor& vector, const Scalar& beta,
                 const Scalar& alpha, Tensor* out) {
  const kernels::OpScope scope("addmv");
  check_operands("addmv", {"mat", matrix}, {"vec", vector});
  check_dim("addmv", {"mat", matrix}, 2, "matrix");
  check_dim("addmv", {"vec", vector}, 1, "vector");
  check_inner("addmv", matrix.size(0), matrix.size(1), vector.size(0), 1, matrix.device());
  check_addend("addmv", self, matrix);
  return add_product({"addmv", out, &self}, addend_for("addmv", self, {matrix.size(0)}),
                     matrix.unsqueeze(0), vector.unsqueeze(0).unsqueeze(2), beta, alpha);
}

}  // namespace

#define GANTRY_PRODUCT(name)                                                          \
  Tensor name(const Tensor& a, const Tensor& b) { return run_##name(a, b, nullptr); } \
  Tensor& name##_out(Tensor& out, const Tensor& a, const Tensor& b) {                 \
    run_##name(a, b, &out);                                                           \
    return out;                                                                       \
  }
GANTRY_PRODUCT(matmul)
GANTRY_PRODUCT(mm)
GANTRY_PRODUCT(bmm)
GANTRY_PRODUCT(mv)
GANTRY_PRODUCT(dot)
GANTRY_PRODUCT(outer)
#undef GANTRY_PRODUCT

Tensor addmm_activation(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                        Activation activation, const Scalar& beta, const Scalar& alpha) {
  return run_addmm_activation(self, mat1, mat2, activation, beta, alpha, nullptr);
}
Tensor& addmm_activation_out(Tensor& out, const Tensor& self, const Tensor& mat1,
                             const Tensor& mat2, Activation activation, const Scalar& beta,
                             const Scalar& alpha) {
  run_addmm_activation(self, mat1, mat2, activation, beta, alpha, &out);
  return out;
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              Activation activation) {
  return run_linear(input, weight, bias, activation, nullptr);
}
Tensor& linear_out(Tensor& out, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, Activation activation) {
  run_linear(input, weight, bias, activation, &out);
  return out;
}

#define GANTRY_SUM_OF_PRODUCTS(name)                                                    \
  Tensor name(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, \
              const Scalar& alpha) {                                                    \
    return run_##name(self, a, b, beta, alpha, nullptr);                                \
  }                                                                                     \
  Tensor& name##_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b, \
                     const Scalar& beta, const Scalar& alpha) {                         \
    run_##name(self, a, b, beta, alpha, &out);                                          \
    return out;                                                                         \
  }
GANTRY_SUM_OF_PRODUCTS(addmm)
GANTRY_SUM_OF_PRODUCTS(baddbmm)
GANTRY_SUM_OF_PRODUCTS(addmv)
#undef GANTRY_SUM_OF_PRODUCTS

}  // namespace gantry
