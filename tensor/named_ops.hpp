// Operations as parts of others: errors name `op`, the operation that the user called.
#pragma once

#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// add_out(out, a, b).
void add_as(std::string_view op, Tensor& out, const Operand& a, const Operand& b);
// where_out(out, condition, a, b).
void where_as(std::string_view op, Tensor& out, const Tensor& condition, const Operand& a,
              const Operand& b);

}  // namespace gantry::detail
