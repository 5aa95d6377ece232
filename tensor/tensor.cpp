#include <gantry/tensor/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/impl/tensor_impl.hpp"

namespace gantry {

Tensor Tensor::restride(const Shape& sizes, const Dims& strides, std::int64_t offset) const {
  // With dims of stride 0, the number of elements may not fit i64.
  const std::int64_t numel = detail::checked_numel("view", sizes);
  return Impl::make(impl_->storage(), sizes, strides, offset, numel, impl_->dtype,
                    detail::is_contiguous(sizes, strides));
}

Tensor Tensor::from_storage(const Storage& storage, const Shape& sizes, const Dims& strides,
                            std::int64_t offset, DType dtype) {
  detail::check_layout("from_storage", sizes, strides, offset, dtype, storage.bytes(),
                       storage.device());
  return Impl::make(storage, sizes, strides, offset, sizes.product(), dtype,
                    detail::is_contiguous(sizes, strides));
}

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void throw_undefined() {
  throw InvalidArgument("Tensor: expected a defined tensor, but got an undefined tensor");
}

}  // namespace

inline const Tensor::Impl& Tensor::impl() const {
  if (!impl_) throw_undefined();
  return *impl_;
}

const Shape& Tensor::sizes() const { return impl().sizes; }
const Dims& Tensor::strides() const { return impl().strides; }
int Tensor::dim() const { return impl().sizes.size(); }
std::int64_t Tensor::numel() const { return impl().numel; }
DType Tensor::dtype() const { return impl().dtype; }
Device Tensor::device() const { return impl().storage().device(); }
std::size_t Tensor::element_size() const { return gantry::element_size(impl().dtype); }
std::size_t Tensor::nbytes() const { return static_cast<std::size_t>(numel()) * element_size(); }
const Storage& Tensor::storage() const { return impl().storage(); }
std::int64_t Tensor::storage_offset() const { return impl().offset; }
bool Tensor::is_contiguous() const { return impl().contiguous; }
bool Tensor::is_pinned() const { return impl().storage().is_pinned(); }

namespace {

int checked_dim(const Tensor& tensor, std::string_view op, int dim) {
  detail::check_defined(op, "self", tensor);
  if (tensor.dim() == 0) {
    throw IndexError(
        fmt::format("{}: Dimension specified as {} but tensor has no dimensions", op, dim),
        tensor.device().str());
  }
  return detail::wrap_dim(op, dim, tensor);
}

}  // namespace

std::int64_t Tensor::size(Dim dim) const { return sizes()[checked_dim(*this, "size", dim)]; }
std::int64_t Tensor::stride(Dim dim) const { return strides()[checked_dim(*this, "stride", dim)]; }

void* Tensor::data() const { return impl().data; }

void* Tensor::typed_data(DType dtype) const {
  detail::check_defined("data_ptr", "self", *this);
  if (dtype != impl_->dtype) {
    throw DTypeError(fmt::format("data_ptr: expected scalar type {} but found {}",
                                 torch_name(dtype), torch_name(impl_->dtype)),
                     device().str());
  }
  return data();
}

bool Tensor::is_view_of(const Tensor& other) const { return storage() == other.storage(); }

TensorOptions Tensor::options() const {
  return {.dtype = dtype(), .device = device(), .pinned = is_pinned()};
}

TensorRef Tensor::ref() const {
  const Impl& self = impl();
  TensorRef result;
  result.data = self.data;
  result.dtype = self.dtype;
  result.ndim = self.sizes.size();
  std::copy(self.sizes.begin(), self.sizes.end(), result.sizes);
  std::copy(self.strides.begin(), self.strides.end(), result.strides);
  return result;
}

Tensor Tensor::alias() const {
  detail::check_defined("alias", "self", *this);
  return restride(sizes(), strides(), storage_offset());
}

Tensor Tensor::detach() const { return alias(); }

Tensor Tensor::as_strided(const Shape& sizes, const Dims& strides,
                          std::optional<std::int64_t> offset) const {
  detail::check_defined("as_strided", "self", *this);
  const std::int64_t start = offset.value_or(storage_offset());
  detail::check_layout("as_strided", sizes, strides, start, dtype(), storage().bytes(), device());
  return restride(sizes, strides, start);
}

Tensor Tensor::view(const Shape& sizes) const {
  detail::check_defined("view", "self", *this);
  const Shape target = detail::infer_sizes("view", sizes, numel(), device());
  const auto layout = detail::view_strides(this->sizes(), strides(), target);
  if (!layout) {
    throw ShapeError(
        "view: view size is not compatible with input tensor's size and stride (at least one "
        "dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
        device().str());
  }
  return restride(target, *layout, storage_offset());
}

Tensor Tensor::reshape(const Shape& sizes) const {
  detail::check_defined("reshape", "self", *this);
  const Shape target = detail::infer_sizes("reshape", sizes, numel(), device());
  const auto layout = detail::view_strides(this->sizes(), strides(), target);
  if (layout) return restride(target, *layout, storage_offset());
  return clone().view(target);
}

Tensor Tensor::view_dtype(DType dtype) const {
  detail::check_defined("view", "self", *this);
  const auto from = static_cast<std::int64_t>(element_size());
  const auto to = static_cast<std::int64_t>(gantry::element_size(dtype));
  Shape new_sizes = sizes();
  Dims new_strides = strides();
  std::int64_t offset = storage_offset();
  if (from != to) {
    const auto change = fmt::format("to view {} as {} (different element sizes), but got",
                                    torch_name(this->dtype()), torch_name(dtype));
    if (dim() == 0) {
      throw ShapeError(fmt::format("view: self.dim() cannot be 0 {} a 0-dim tensor", change),
                       device().str());
    }
    if (strides().back() != 1) {
      throw ShapeError(
          fmt::format("view: self.stride(-1) must be 1 {} {}", change, strides().back()),
          device().str());
    }
    const int last = dim() - 1;
    if (from < to) {
      const std::int64_t ratio = to / from;
      const auto require = [&](std::string_view what, std::int64_t value) {
        if (value % ratio == 0) return;
        throw ShapeError(
            fmt::format("view: {} must be divisible by {} {} {}", what, ratio, change, value),
            device().str());
      };
      require("self.size(-1)", sizes().back());
      require("self.storage_offset()", offset);
      for (int d = 0; d < last; ++d) {
        require(fmt::format("self.stride({})", d), strides()[d]);
        new_strides[d] /= ratio;
      }
      new_sizes[last] /= ratio;
      offset /= ratio;
    } else {
      const std::int64_t ratio = from / to;
      for (int d = 0; d < last; ++d) new_strides[d] *= ratio;
      new_sizes[last] *= ratio;
      offset *= ratio;
    }
  }
  return from_storage(storage(), new_sizes, new_strides, offset, dtype);
}

}  // namespace gantry
