#pragma once

#include <gantry/core/export.hpp>
#include <gantry/core/promotion.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The dtype in which an operation computes: the promoted type of its operands.
///
/// Tensors with dims rank first, then 0-dim tensors, then numbers. A lower rank changes the dtype
/// only if its category is higher (floating > integral > bool). `i32_tensor + 2` is thus i32, and
/// `i32_tensor + 2.5` is f32.
/// @since 0.1
[[nodiscard]] GANTRY_API DType result_type(std::span<const Operand> operands);
[[nodiscard]] GANTRY_API DType result_type(const Operand& a, const Operand& b);

}  // namespace gantry
