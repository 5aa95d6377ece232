// Members of Tensor that forward to functions that are not elementwise.
#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/aliases.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/rearrangements.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/statistics.hpp>

#include "tensor/check.hpp"

namespace gantry {

Tensor Tensor::sum(const Axes& dims, bool keepdim, std::optional<DType> dtype) const {
  return gantry::sum(*this, dims, keepdim, dtype);
}
Tensor Tensor::mean(const Axes& dims, bool keepdim, std::optional<DType> dtype) const {
  return gantry::mean(*this, dims, keepdim, dtype);
}
Tensor Tensor::prod(const Axes& dims, bool keepdim, std::optional<DType> dtype) const {
  return gantry::prod(*this, dims, keepdim, dtype);
}
Tensor Tensor::amax(const Axes& dims, bool keepdim) const {
  return gantry::amax(*this, dims, keepdim);
}
Tensor Tensor::amin(const Axes& dims, bool keepdim) const {
  return gantry::amin(*this, dims, keepdim);
}
Tensor Tensor::max() const { return gantry::max(*this); }
ValuesAndIndices Tensor::max(Dim dim, bool keepdim) const {
  return gantry::max(*this, dim, keepdim);
}
Tensor Tensor::min() const { return gantry::min(*this); }
ValuesAndIndices Tensor::min(Dim dim, bool keepdim) const {
  return gantry::min(*this, dim, keepdim);
}
Tensor Tensor::argmax(std::optional<Dim> dim, bool keepdim) const {
  return gantry::argmax(*this, dim, keepdim);
}
Tensor Tensor::argmin(std::optional<Dim> dim, bool keepdim) const {
  return gantry::argmin(*this, dim, keepdim);
}
Tensor Tensor::any(const Axes& dims, bool keepdim) const {
  return gantry::any(*this, dims, keepdim);
}
Tensor Tensor::all(const Axes& dims, bool keepdim) const {
  return gantry::all(*this, dims, keepdim);
}
Tensor Tensor::count_nonzero(const Axes& dims) const { return gantry::count_nonzero(*this, dims); }
Tensor Tensor::norm(double p, const Axes& dims, bool keepdim) const {
  return gantry::norm(*this, p, dims, keepdim);
}
Tensor Tensor::var(const VarianceOptions& options) const { return gantry::var(*this, options); }
Tensor Tensor::std(const VarianceOptions& options) const { return gantry::std(*this, options); }
Tensor Tensor::logsumexp(const Axes& dims, bool keepdim) const {
  return gantry::logsumexp(*this, dims, keepdim);
}
Tensor Tensor::cumsum(Dim dim, std::optional<DType> dtype) const {
  return gantry::cumsum(*this, dim, dtype);
}
Tensor Tensor::cumprod(Dim dim, std::optional<DType> dtype) const {
  return gantry::cumprod(*this, dim, dtype);
}
Tensor Tensor::softmax(Dim dim, std::optional<DType> dtype) const {
  return gantry::softmax(*this, dim, dtype);
}
Tensor Tensor::log_softmax(Dim dim, std::optional<DType> dtype) const {
  return gantry::log_softmax(*this, dim, dtype);
}
Tensor Tensor::matmul(const Tensor& other) const { return gantry::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& other) const { return gantry::mm(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return gantry::bmm(*this, other); }
Tensor Tensor::mv(const Tensor& vector) const { return gantry::mv(*this, vector); }
Tensor Tensor::dot(const Tensor& other) const { return gantry::dot(*this, other); }
Tensor Tensor::outer(const Tensor& other) const { return gantry::outer(*this, other); }
Tensor Tensor::addmm(const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) const {
  return gantry::addmm(*this, mat1, mat2, beta, alpha);
}
Tensor Tensor::addmv(const Tensor& matrix, const Tensor& vector, const Scalar& beta,
                     const Scalar& alpha) const {
  return gantry::addmv(*this, matrix, vector, beta, alpha);
}
Tensor Tensor::baddbmm(const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                       const Scalar& alpha) const {
  return gantry::baddbmm(*this, batch1, batch2, beta, alpha);
}
Tensor Tensor::index_select(Dim dim, const Tensor& index) const {
  return gantry::index_select(*this, dim, index);
}
Tensor Tensor::gather(Dim dim, const Tensor& index) const {
  return gantry::gather(*this, dim, index);
}
Tensor Tensor::repeat_interleave(std::int64_t repeats, std::optional<Dim> dim) const {
  return gantry::repeat_interleave(*this, repeats, dim);
}

Tensor Tensor::scatter(Dim dim, const Tensor& index, const Operand& source) const {
  return gantry::scatter(*this, dim, index, source);
}

bool Tensor::is_floating_point() const { return gantry::is_floating_point(dtype()); }
Tensor Tensor::view_as(const Tensor& other) const { return gantry::view_as(*this, other); }
Tensor Tensor::reshape_as(const Tensor& other) const { return gantry::reshape_as(*this, other); }
Tensor Tensor::swapaxes(Dim dim0, Dim dim1) const { return transpose(dim0, dim1); }
Tensor Tensor::swapdims(Dim dim0, Dim dim1) const { return transpose(dim0, dim1); }
Tensor Tensor::ravel() const { return gantry::ravel(*this); }
Tensor Tensor::rot90(std::int64_t k, const Axes& dims) const {
  return gantry::rot90(*this, k, dims);
}
Tensor Tensor::fliplr() const { return gantry::fliplr(*this); }
Tensor Tensor::flipud() const { return gantry::flipud(*this); }
MinMax Tensor::aminmax(std::optional<Dim> dim, bool keepdim) const {
  return gantry::aminmax(*this, dim, keepdim);
}
Tensor Tensor::trace() const {
  detail::check_defined("trace", "self", *this);
  if (dim() != 2) {
    throw ShapeError(fmt::format("trace: expected a matrix, but got a tensor with dim {}", dim()),
                     device().str());
  }
  return diagonal().sum();
}
Tensor Tensor::nansum(const Axes& dims, bool keepdim, std::optional<DType> dtype) const {
  return gantry::nansum(*this, dims, keepdim, dtype);
}
Tensor Tensor::nanmean(const Axes& dims, bool keepdim, std::optional<DType> dtype) const {
  return gantry::nanmean(*this, dims, keepdim, dtype);
}
Tensor Tensor::dist(const Tensor& other, double p) const { return gantry::dist(*this, other, p); }
Tensor Tensor::inner(const Tensor& other) const { return gantry::inner(*this, other); }
Tensor Tensor::vdot(const Tensor& other) const { return gantry::vdot(*this, other); }
Tensor Tensor::kron(const Tensor& other) const { return gantry::kron(*this, other); }
Tensor Tensor::addr(const Tensor& a, const Tensor& b, const Scalar& beta,
                    const Scalar& alpha) const {
  return gantry::addr(*this, a, b, beta, alpha);
}
Tensor& Tensor::addr_(const Tensor& a, const Tensor& b, const Scalar& beta,
                      const Scalar& alpha) const {
  return addr_out(handle(), *this, a, b, beta, alpha);
}
Tensor& Tensor::addmm_(const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                       const Scalar& alpha) const {
  return addmm_out(handle(), *this, mat1, mat2, beta, alpha);
}
Tensor& Tensor::addmv_(const Tensor& matrix, const Tensor& vector, const Scalar& beta,
                       const Scalar& alpha) const {
  return addmv_out(handle(), *this, matrix, vector, beta, alpha);
}
Tensor& Tensor::baddbmm_(const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                         const Scalar& alpha) const {
  return baddbmm_out(handle(), *this, batch1, batch2, beta, alpha);
}

}  // namespace gantry
