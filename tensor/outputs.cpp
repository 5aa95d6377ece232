#include "tensor/outputs.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "tensor/overlap.hpp"

namespace gantry::detail {

void check_output(std::string_view op, std::string_view argument, const Tensor& out,
                  const Shape& shape, DType dtype) {
  if (out.dtype() != dtype) {
    throw DTypeError(fmt::format("{}: expected argument '{}' of dtype {}, but got {}", op, argument,
                                 torch_name(dtype), torch_name(out.dtype())),
                     out.device().str());
  }
  if (out.sizes() != shape) {
    throw ShapeError(fmt::format("{}: expected argument '{}' of shape {}, but got {}", op, argument,
                                 shape.str(), out.sizes().str()),
                     out.device().str());
  }
  check_writable(op, out);
}

}  // namespace gantry::detail
