// Members of Tensor that forward to sorting.hpp, binning.hpp and cumulative.hpp.
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/sorting.hpp>

namespace gantry {

ValuesAndIndices Tensor::sort(Dim dim, bool descending, bool stable) const {
  return gantry::sort(*this, dim, descending, stable);
}
Tensor Tensor::argsort(Dim dim, bool descending, bool stable) const {
  return gantry::argsort(*this, dim, descending, stable);
}
Tensor Tensor::msort() const { return gantry::msort(*this); }
ValuesAndIndices Tensor::topk(std::int64_t k, Dim dim, bool largest, bool sorted) const {
  return gantry::topk(*this, k, dim, largest, sorted);
}
ValuesAndIndices Tensor::kthvalue(std::int64_t k, Dim dim, bool keepdim) const {
  return gantry::kthvalue(*this, k, dim, keepdim);
}
Tensor Tensor::median() const { return gantry::median(*this); }
ValuesAndIndices Tensor::median(Dim dim, bool keepdim) const {
  return gantry::median(*this, dim, keepdim);
}
Tensor Tensor::nanmedian() const { return gantry::nanmedian(*this); }
ValuesAndIndices Tensor::nanmedian(Dim dim, bool keepdim) const {
  return gantry::nanmedian(*this, dim, keepdim);
}
ValuesAndIndices Tensor::mode(Dim dim, bool keepdim) const {
  return gantry::mode(*this, dim, keepdim);
}
UniqueElements Tensor::unique(bool sorted, bool return_inverse, bool return_counts,
                              std::optional<Dim> dim) const {
  return gantry::unique(*this, sorted, return_inverse, return_counts, dim);
}
UniqueElements Tensor::unique_consecutive(bool return_inverse, bool return_counts,
                                          std::optional<Dim> dim) const {
  return gantry::unique_consecutive(*this, return_inverse, return_counts, dim);
}
Tensor Tensor::isin(const Operand& test_elements, bool assume_unique, bool invert) const {
  return gantry::isin(*this, test_elements, assume_unique, invert);
}
Tensor Tensor::bincount(const std::optional<Tensor>& weights, std::int64_t minlength) const {
  return gantry::bincount(*this, weights, minlength);
}
Tensor Tensor::histc(std::int64_t bins, const Scalar& min, const Scalar& max) const {
  return gantry::histc(*this, bins, min, max);
}
ValuesAndIndices Tensor::cummax(Dim dim) const { return gantry::cummax(*this, dim); }
ValuesAndIndices Tensor::cummin(Dim dim) const { return gantry::cummin(*this, dim); }
Tensor Tensor::logcumsumexp(Dim dim) const { return gantry::logcumsumexp(*this, dim); }
Tensor Tensor::diff(std::int64_t n, Dim dim, const std::optional<Tensor>& prepend,
                    const std::optional<Tensor>& append) const {
  return gantry::diff(*this, n, dim, prepend, append);
}

}  // namespace gantry
