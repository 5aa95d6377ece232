#pragma once

#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// Throws DTypeError "sort: expected argument 'indices' of dtype Long, but got Int", ShapeError
// "sort: expected argument 'indices' of shape [2], but got [3]" or InvalidArgument if elements of
// `out` share memory. The devices are checked before.
void check_output(std::string_view op, std::string_view argument, const Tensor& out,
                  const Shape& shape, DType dtype);

}  // namespace gantry::detail
