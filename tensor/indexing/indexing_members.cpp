// Members of Tensor that forward to indexing.hpp.
#include <gantry/tensor/indexing.hpp>

#include "tensor/indexing/in_place_indexing.hpp"

namespace gantry {

Tensor Tensor::index_put(std::initializer_list<Index> indices, const Operand& value,
                         bool accumulate) const {
  return gantry::index_put(*this, indices, value, accumulate);
}
Tensor Tensor::take(const Tensor& index) const { return gantry::take(*this, index); }
Tensor Tensor::take_along_dim(const Tensor& indices, std::optional<Dim> dim) const {
  return gantry::take_along_dim(*this, indices, dim);
}
Tensor Tensor::put(const Tensor& index, const Tensor& source, bool accumulate) const {
  return gantry::put(*this, index, source, accumulate);
}
Tensor& Tensor::put_(const Tensor& index, const Tensor& source, bool accumulate) const {
  detail::put_(*this, index, source, accumulate);
  return handle();
}
Tensor Tensor::scatter(Dim dim, const Tensor& index, const Operand& source,
                       std::string_view reduce) const {
  return gantry::scatter(*this, dim, index, source, reduce);
}
Tensor& Tensor::scatter_(Dim dim, const Tensor& index, const Operand& source,
                         std::string_view reduce) const {
  detail::scatter_(*this, dim, index, source, reduce);
  return handle();
}
Tensor Tensor::scatter_add(Dim dim, const Tensor& index, const Tensor& source) const {
  return gantry::scatter_add(*this, dim, index, source);
}
Tensor Tensor::scatter_reduce(Dim dim, const Tensor& index, const Tensor& source,
                              std::string_view reduce, bool include_self) const {
  return gantry::scatter_reduce(*this, dim, index, source, reduce, include_self);
}
Tensor& Tensor::scatter_reduce_(Dim dim, const Tensor& index, const Tensor& source,
                                std::string_view reduce, bool include_self) const {
  detail::scatter_reduce_(*this, dim, index, source, reduce, include_self);
  return handle();
}
Tensor Tensor::index_add(Dim dim, const Tensor& index, const Tensor& source,
                         const Scalar& alpha) const {
  return gantry::index_add(*this, dim, index, source, alpha);
}
Tensor& Tensor::index_add_(Dim dim, const Tensor& index, const Tensor& source,
                           const Scalar& alpha) const {
  detail::index_add_(*this, dim, index, source, alpha);
  return handle();
}
Tensor Tensor::index_copy(Dim dim, const Tensor& index, const Tensor& source) const {
  return gantry::index_copy(*this, dim, index, source);
}
Tensor& Tensor::index_copy_(Dim dim, const Tensor& index, const Tensor& source) const {
  detail::index_copy_(*this, dim, index, source);
  return handle();
}
Tensor Tensor::index_fill(Dim dim, const Tensor& index, const Operand& value) const {
  return gantry::index_fill(*this, dim, index, value);
}
Tensor& Tensor::index_fill_(Dim dim, const Tensor& index, const Operand& value) const {
  detail::index_fill_(*this, dim, index, value);
  return handle();
}
Tensor Tensor::index_reduce(Dim dim, const Tensor& index, const Tensor& source,
                            std::string_view reduce, bool include_self) const {
  return gantry::index_reduce(*this, dim, index, source, reduce, include_self);
}
Tensor& Tensor::index_reduce_(Dim dim, const Tensor& index, const Tensor& source,
                              std::string_view reduce, bool include_self) const {
  detail::index_reduce_(*this, dim, index, source, reduce, include_self);
  return handle();
}
Tensor Tensor::nonzero() const { return gantry::nonzero(*this); }
std::vector<Tensor> Tensor::nonzero_numpy() const { return gantry::nonzero_numpy(*this); }
Tensor Tensor::argwhere() const { return gantry::argwhere(*this); }
Tensor Tensor::masked_select(const Tensor& mask) const {
  return gantry::masked_select(*this, mask);
}
Tensor Tensor::masked_scatter(const Tensor& mask, const Tensor& source) const {
  return gantry::masked_scatter(*this, mask, source);
}
Tensor& Tensor::masked_scatter_(const Tensor& mask, const Tensor& source) const {
  detail::masked_scatter_(*this, mask, source);
  return handle();
}

}  // namespace gantry
