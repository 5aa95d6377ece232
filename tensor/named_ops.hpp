// Operations that other operations use. `op` is the name of the caller's operation, for errors.
#pragma once

#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// empty(sizes, options).
Tensor empty_as(std::string_view op, const Shape& sizes, const TensorOptions& options);
// add_out(out, a, b).
void add_as(std::string_view op, Tensor& out, const Operand& a, const Operand& b);
// where(condition, a, b), or where_out if there is an `out`, computed in `dtype`.
Tensor where_as(std::string_view op, Tensor* out, const Tensor& condition, const Operand& a,
                const Operand& b, DType dtype);

}  // namespace gantry::detail
