#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <string_view>
#include <type_traits>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/tensor/accessor.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/tensor.hpp>

#include "kernels/op_scope.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "tensor/check.hpp"

namespace gantry {

namespace {

// Larger tensors are copied to pageable memory: a pinned buffer of their size would cost more.
constexpr std::size_t kLargestBounceBytes = std::size_t{16} << 20;

// Keeps `bounce` from reuse while a copy on `stream` may still write to it.
void keep_until_copied(memory::Buffer& bounce, const Stream& stream) noexcept {
  try {
    memory::pinned_allocator().record_stream(bounce.block(), stream);
  } catch (const std::exception&) {
    (void)bounce.release();  // leaks it: reuse would be a data race
  }
}

Scalar scalar_at(const void* data, DType dtype) {
  return dispatch_any(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      return Scalar(*static_cast<const std::uint8_t*>(data) != 0);
    } else {
      T value;
      std::memcpy(&value, data, sizeof value);
      return Scalar(value);
    }
  });
}

void check_dims(std::string_view op, const Tensor& self, std::size_t dims) {
  detail::check_defined(op, "self", self);
  if (static_cast<std::size_t>(self.dim()) == dims) return;
  throw ShapeError(fmt::format("{}: expected {} dims but tensor has {}", op, dims, self.dim()),
                   self.device().str());
}

}  // namespace

void detail::check_accessor(const Tensor& self, std::size_t dims) {
  check_dims("accessor", self, dims);
  if (self.is_cpu()) return;
  throw InvalidArgument(
      fmt::format(
          "accessor: expected a tensor of the CPU, but got one of {}; copy it with cpu(), or "
          "pass ref() to a kernel",
          self.device().str()),
      self.device().str());
}

void detail::check_mdspan(const Tensor& self, std::size_t dims) {
  check_dims("mdspan", self, dims);
}

void detail::refuse_mdspan(const Tensor& self, std::string_view expected, std::size_t dim) {
  const int d = static_cast<int>(dim);
  throw ShapeError(fmt::format("mdspan: expected {} at dim {}, but got size {} and stride {}",
                               expected, dim, self.size(d), self.stride(d)),
                   self.device().str());
}

Scalar Tensor::item() const {
  const kernels::OpScope scope("item");
  detail::check_defined("item", "self", *this);
  if (numel() != 1) {
    throw InvalidArgument(
        fmt::format("item: a Tensor with {} elements cannot be converted to Scalar", numel()),
        device().str());
  }
  if (is_cpu()) {
    if (sanitizer::is_on()) sanitizer::uses_on_host("item", {sanitizer::reads(*this)});
    return scalar_at(data(), dtype());
  }
  const Stream stream = Stream::current(device());
  memory::Buffer bounce = memory::pinned(element_size());
  driver().copy(bounce.data(), data(), element_size(), stream.native());
  try {
    stream.synchronize();
  } catch (...) {
    keep_until_copied(bounce, stream);
    throw;
  }
  return scalar_at(bounce.data(), dtype());
}

Tensor Tensor::to_host(DType dtype) const {
  const kernels::OpScope scope("to_vector");
  detail::check_defined("to_vector", "self", *this);
  // Bool memory may have bytes other than 0 and 1, which are not valid bools.
  if (dtype == DType::bool_ && this->dtype() == dtype) return view(DType::u8).to_host(dtype);
  if (is_cpu()) {
    if (sanitizer::is_on()) sanitizer::uses_on_host("to_vector", {sanitizer::reads(*this)});
    return to(dtype).contiguous();
  }
  const std::size_t bytes = static_cast<std::size_t>(numel()) * gantry::element_size(dtype);
  Tensor host = empty(sizes(), {.dtype = dtype, .pinned = bytes <= kLargestBounceBytes});
  host.copy_(*this);
  return host;
}

}  // namespace gantry
