#include <gantry/tensor/contractions.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/promote.hpp>

#include "kernels/linalg/gemm.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/linalg/contract.hpp"
#include "tensor/same_device.hpp"

namespace gantry {

namespace {

void check_pair(std::string_view op, const Tensor& a, const Tensor& b) {
  detail::common_device(op, {{"self", a}, {"other", b}});
  if (a.dtype() == b.dtype() && a.dtype() != DType::bool_) return;
  throw DTypeError(fmt::format("{}: expected both tensors to have the same dtype of numbers, but "
                               "got {} and {}",
                               op, torch_name(a.dtype()), torch_name(b.dtype())),
                   a.device().str());
}

// Non-negative dims, without repeats. An empty list means no dims.
Dims wrapped(const Dims& dims, const Tensor& self) {
  return dims.empty() ? Dims{} : detail::wrap_dims("tensordot", Axes(dims), self);
}

Tensor run_tensordot(std::string_view op, const Tensor& a, const Tensor& b, const Dims& of_a,
                     const Dims& of_b) {
  detail::LabelledTensor left{a, {}};
  detail::LabelledTensor right{b, {}};
  int next = 0;
  for (int d = 0; d < a.dim(); ++d) left.labels.push_back(next++);
  for (int d = 0; d < b.dim(); ++d) right.labels.push_back(next++);
  std::vector<bool> is_kept(static_cast<std::size_t>(next), true);
  for (int i = 0; i < of_a.size(); ++i) {
    const auto first = static_cast<int>(of_a[i]);
    const auto second = static_cast<int>(of_b[i]);
    if (a.size(first) != b.size(second) && a.size(first) != 1 && b.size(second) != 1) {
      throw ShapeError(
          fmt::format("{}: contracted dimensions need to match, but first has size {} in dim {} "
                      "and second has size {} in dim {}",
                      op, a.size(first), first, b.size(second), second),
          a.device().str());
    }
    right.labels[static_cast<std::size_t>(second)] = first;
    is_kept[static_cast<std::size_t>(first)] = false;
  }
  return detail::contract(left, right, is_kept).tensor;
}

}  // namespace

Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
  const kernels::OpScope scope("tensordot");
  check_pair("tensordot", a, b);
  if (dims_a.size() != dims_b.size()) {
    throw InvalidArgument("tensordot: both dimension lists should have same length",
                          a.device().str());
  }
  return run_tensordot("tensordot", a, b, wrapped(dims_a, a), wrapped(dims_b, b));
}

Tensor tensordot(const Tensor& a, const Tensor& b, int dims) {
  const kernels::OpScope scope("tensordot");
  check_pair("tensordot", a, b);
  if (dims < 0 || dims > a.dim() || dims > b.dim()) {
    throw InvalidArgument(
        fmt::format("tensordot: expected dims from 0 to the dims of both tensors, but got dims={}",
                    dims),
        a.device().str());
  }
  Dims of_a;
  Dims of_b;
  for (int d = 0; d < dims; ++d) {
    of_a.push_back(a.dim() - dims + d);
    of_b.push_back(d);
  }
  return run_tensordot("tensordot", a, b, of_a, of_b);
}

Tensor inner(const Tensor& a, const Tensor& b) {
  const kernels::OpScope scope("inner");
  check_pair("inner", a, b);
  if (a.dim() == 0 || b.dim() == 0) return mul(a, b);
  if (a.size(-1) != b.size(-1)) {
    throw ShapeError(fmt::format("inner() the last dimension must match on both input tensors but "
                                 "got shapes {} and {}",
                                 a.sizes().str(), b.sizes().str()),
                     a.device().str());
  }
  return run_tensordot("inner", a, b, {a.dim() - 1}, {b.dim() - 1});
}

Tensor vdot(const Tensor& a, const Tensor& b) {
  const kernels::OpScope scope("vdot");
  return dot(a, b);
}

Tensor kron(const Tensor& a, const Tensor& b) {
  const kernels::OpScope scope("kron");
  detail::common_device("kron", {{"self", a}, {"other", b}});
  const int ndim = std::max(a.dim(), b.dim());
  if (ndim > kMaxDims / 2) {
    throw ShapeError(
        fmt::format("kron: expected tensors of at most {} dims, but got {}", kMaxDims / 2, ndim),
        a.device().str());
  }
  Shape of_a;
  Shape of_b;
  Shape sizes;
  for (int d = 0; d < ndim; ++d) {
    const std::int64_t size_a = d < ndim - a.dim() ? 1 : a.size(d - ndim + a.dim());
    const std::int64_t size_b = d < ndim - b.dim() ? 1 : b.size(d - ndim + b.dim());
    of_a.push_back(size_a);
    of_a.push_back(1);
    of_b.push_back(1);
    of_b.push_back(size_b);
    sizes.push_back(size_a * size_b);
  }
  return mul(a.reshape(of_a), b.reshape(of_b)).reshape(sizes);
}

namespace {

Tensor run_addr(Tensor* out, const Tensor& self, const Tensor& a, const Tensor& b,
                const Scalar& beta, const Scalar& alpha) {
  const kernels::OpScope scope("addr");
  detail::common_device("addr", {{"self", self}, {"vec1", a}, {"vec2", b}});
  if (a.dim() != 1 || b.dim() != 1) {
    throw ShapeError(fmt::format("addr: Expected 1-D argument vec1 and vec2, but got {}-D and {}-D",
                                 a.dim(), b.dim()),
                     a.device().str());
  }
  const std::vector<Operand> operands{self, a, b};
  const DType dtype = result_type(operands);
  const bool has_fraction =
      beta.category() == DTypeCategory::floating || alpha.category() == DTypeCategory::floating;
  if (has_fraction && !is_floating_point(dtype)) {
    throw DTypeError(
        "addr: For integral input tensors, arguments beta and alpha must not be floating point "
        "numbers.",
        self.device().str());
  }
  for (const Scalar& factor : {beta, alpha}) detail::check_factor_fits("addr", factor, dtype);
  const Shape sizes{a.numel(), b.numel()};
  const Tensor addend =
      self.expand(detail::expanded_sizes("addr", self.sizes(), sizes, self.device()));
  detail::Destination destination("addr", out, sizes, dtype, {&self, &a, &b});
  Tensor result = destination.tensor();
  const Tensor column = a.to(dtype).unsqueeze(1);
  const Tensor row = b.to(dtype).unsqueeze(0);
  if (beta.to<double>() == 0) {
    mul_out(result, mul(column, alpha), row);
  } else {
    const Tensor scaled = beta.to<double>() == 1 ? addend.to(dtype) : mul(addend.to(dtype), beta);
    addcmul_out(result, scaled, column, row, alpha);
  }
  return destination.finish();
}

// The product of matrices first … last in the order of the fewest multiplications; split[first,
// last] is the last matrix of the left factor.
Tensor multiply_chain(const std::vector<Tensor>& matrices, const std::vector<std::size_t>& split,
                      std::size_t first, std::size_t last) {
  if (first == last) return matrices[first];
  const std::size_t at = split[first * matrices.size() + last];
  return mm(multiply_chain(matrices, split, first, at),
            multiply_chain(matrices, split, at + 1, last));
}

}  // namespace

Tensor addr(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
            const Scalar& alpha) {
  return run_addr(nullptr, self, a, b, beta, alpha);
}
Tensor& addr_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                 const Scalar& beta, const Scalar& alpha) {
  run_addr(&out, self, a, b, beta, alpha);
  return out;
}

Tensor chain_matmul(const std::vector<Tensor>& matrices) {
  const kernels::OpScope scope("chain_matmul");
  const std::size_t n = matrices.size();
  if (n == 0) throw InvalidArgument("chain_matmul: expected at least one matrix");
  const Device device = detail::common_device("chain_matmul", matrices);
  for (std::size_t i = 0; i < n; ++i) {
    if (matrices[i].dim() != 2) {
      throw ShapeError(fmt::format("chain_matmul: Tensor dimension is {}, expected 2 instead.",
                                   matrices[i].dim()),
                       device.str());
    }
    if (i > 0 && matrices[i].size(0) != matrices[i - 1].size(1)) {
      throw ShapeError(
          fmt::format("chain_matmul: mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
                      matrices[i - 1].size(0), matrices[i - 1].size(1), matrices[i].size(0),
                      matrices[i].size(1)),
          device.str());
    }
    if (matrices[i].dtype() != matrices[0].dtype() || !is_floating_point(matrices[i].dtype())) {
      throw DTypeError(
          fmt::format("chain_matmul: expected matrices of one floating type, but got "
                      "{} and {}",
                      torch_name(matrices[0].dtype()), torch_name(matrices[i].dtype())),
          device.str());
    }
  }
  std::vector<double> cost(n * n, 0);
  std::vector<std::size_t> split(n * n, 0);
  for (std::size_t length = 2; length <= n; ++length) {
    for (std::size_t first = 0; first + length <= n; ++first) {
      const std::size_t last = first + length - 1;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t at = first; at < last; ++at) {
        const double products = static_cast<double>(matrices[first].size(0)) *
                                static_cast<double>(matrices[at].size(1)) *
                                static_cast<double>(matrices[last].size(1));
        const double total = cost[first * n + at] + cost[(at + 1) * n + last] + products;
        if (total >= least) continue;
        least = total;
        split[first * n + last] = at;
      }
      cost[first * n + last] = least;
    }
  }
  return n == 1 ? matrices[0].clone() : multiply_chain(matrices, split, 0, n - 1);
}

void set_allow_tf32(bool allowed) { kernels::set_allow_tf32(allowed); }
bool allow_tf32() { return kernels::allow_tf32(); }

}  // namespace gantry
