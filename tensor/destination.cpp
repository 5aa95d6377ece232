#include "tensor/destination.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/tensor/promote.hpp>

#include "tensor/named_ops.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"

namespace gantry::detail {

void check_output(std::string_view op, const Tensor& out, const Shape& sizes, DType dtype,
                  const Tensor& input) {
  common_device(op, {{"out", out, Role::output}, {"self", input}});
  if (!can_cast(dtype, out.dtype())) {
    throw DTypeError(fmt::format("{}: result type {} can't be cast to the desired output type {}",
                                 op, torch_name(dtype), torch_name(out.dtype())),
                     out.device().str());
  }
  if (out.sizes() != sizes) {
    throw ShapeError(fmt::format("{}: expected an output of shape {}, but got {}", op, sizes.str(),
                                 out.sizes().str()),
                     out.device().str());
  }
  check_writable(op, out);
}

Destination::Destination(std::string_view op, Tensor* out, const Shape& sizes, DType dtype,
                         const Tensor& local, std::initializer_list<const Tensor*> inputs)
    : out_(out) {
  if (out != nullptr) {
    check_output(op, *out, sizes, dtype, local);
    const bool shares = std::any_of(inputs.begin(), inputs.end(), [out](const Tensor* input) {
      return input != nullptr && input->defined() && overlap_of(*out, *input) != Overlap::none;
    });
    if (!shares && out->dtype() == dtype && out->is_contiguous()) {
      tensor_ = *out;
      return;
    }
  }
  tensor_ = empty_as(op, sizes, {.dtype = dtype, .device = local.device()});
}

Tensor Destination::finish() {
  if (out_ == nullptr) return tensor_;
  if (!tensor_.is_view_of(*out_)) out_->copy_(tensor_);
  return *out_;
}

}  // namespace gantry::detail
