#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/tensor.hpp>

#include "kernels/layout/copy.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/layout/copy_between.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

void copy_on_device(const Tensor& out, const Tensor& in) {
  const kernels::Target target = detail::target_of(out);
  const bool bytes_only = out.dtype() == in.dtype() && out.is_contiguous() && in.is_contiguous() &&
                          out.sizes() == in.sizes();
  if (bytes_only && !target.is_cpu()) {
    driver().copy(out.data(), in.data(), in.nbytes(), target.stream().native());
  } else {
    kernels::copy(target, out.ref(), detail::broadcast_ref(in, out.sizes()));
  }
}

}  // namespace

Tensor& Tensor::copy_(const Tensor& source, CopyOptions how) const {
  return copy_as("copy_", source, how);
}

Tensor& Tensor::copy_as(std::string_view op, const Tensor& source, CopyOptions how) const {
  const kernels::OpScope scope("copy");
  detail::check_defined(op, "self", *this);
  detail::check_defined(op, "source", source);
  detail::check_out_shape(op, *this,
                          detail::common_shape(op, {&sizes(), &source.sizes()}, device()));
  detail::check_writable(op, *this);
  const detail::Overlap overlap = detail::overlap_of(*this, source);
  if (overlap == detail::Overlap::full) return handle();
  detail::check_no_partial_overlap(op, *this, source);
  if (numel() == 0) return handle();
  if (device() == source.device()) {
    copy_on_device(*this, source);
  } else if (source.is_cpu()) {
    detail::copy_to_device(*this, source, how.non_blocking);
  } else if (is_cpu()) {
    detail::copy_to_host(*this, source, how.non_blocking);
  } else {
    detail::copy_across(*this, source);
  }
  return handle();
}

Tensor Tensor::to(const TensorOptions& options, ToOptions how) const {
  detail::check_defined("to", "self", *this);
  const DType target_dtype = options.dtype.value_or(dtype());
  const Device target_device = options.device.value_or(device()).resolved();
  detail::check_pinned("to", target_device, options.pinned);
  const bool pins = options.pinned && !is_pinned();
  if (!how.copy && !pins && target_dtype == dtype() && target_device == device()) return *this;
  const kernels::OpScope scope("to");
  const bool to_pinned =
      options.pinned || (how.non_blocking && target_device.is_cpu() && is_cuda());
  Tensor result =
      empty(sizes(), {.dtype = target_dtype, .device = target_device, .pinned = to_pinned});
  result.copy_(*this, {.non_blocking = how.non_blocking});
  return result;
}

Tensor Tensor::to(Device device, ToOptions how) const { return to({.device = device}, how); }

Tensor Tensor::type_as(const Tensor& other) const {
  detail::check_defined("type_as", "self", *this);
  detail::check_defined("type_as", "other", other);
  return to({.dtype = other.dtype(), .device = other.device()});
}

Tensor Tensor::contiguous() const {
  detail::check_defined("contiguous", "self", *this);
  return is_contiguous() ? *this : clone();
}

Tensor Tensor::clone() const {
  const kernels::OpScope scope("clone");
  detail::check_defined("clone", "self", *this);
  Tensor result = empty(sizes(), options());
  result.copy_(*this);
  return result;
}

Tensor Tensor::pin_memory() const {
  const kernels::OpScope scope("pin_memory");
  detail::check_defined("pin_memory", "self", *this);
  if (is_pinned()) return *this;
  if (!is_cpu()) {
    throw InvalidArgument(
        fmt::format("pin_memory: cannot pin '{}', only dense CPU tensors can be pinned",
                    device().str()),
        device().str());
  }
  return to({.pinned = true});
}

void Tensor::record_stream(const Stream& stream) const {
  detail::check_defined("record_stream", "self", *this);
  storage().record_stream(stream);
}

void Tensor::record_use(const Stream& stream) const {
  detail::check_defined("record_use", "self", *this);
  storage().record_use(stream);
}

Tensor& Tensor::zero_() const { return fill_as("zero_", 0); }

Tensor& Tensor::fill_(const Operand& value) const { return fill_as("fill_", value); }

Tensor& Tensor::fill_as(std::string_view op, const Operand& value) const {
  const kernels::OpScope scope(op);
  detail::check_defined(op, "self", *this);
  detail::check_defined(op, "value", value);
  detail::check_writable(op, *this);
  if (value.is_tensor()) {
    const Tensor& tensor = value.tensor();
    if (tensor.dim() != 0) {
      throw ShapeError(
          fmt::format("{}: fill_ only supports 0-dimension value tensor but got tensor with {} "
                      "dimensions.",
                      op, tensor.dim()),
          device().str());
    }
    detail::common_device(op, {{"self", *this, detail::Role::in_place}, {"value", tensor}},
                          detail::CpuScalars::allowed);
    // The number becomes a kernel argument: no host-device copy, which would block the host.
    return tensor.is_cpu() ? fill_as(op, tensor.item()) : copy_as(op, tensor);
  }
  detail::check_fits(op, value.number(), dtype());
  if (numel() > 0) kernels::fill(detail::target_of(*this), ref(), value.number());
  return handle();
}

}  // namespace gantry
