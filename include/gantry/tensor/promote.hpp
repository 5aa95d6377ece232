#pragma once

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The promoted type of two dtypes, by PyTorch's table. Two integers give the wider one; i8 and u8
/// give i16. An integer and a floating type give the floating type. f16 and bf16 give f32. bool is
/// lowest.
[[nodiscard]] GANTRY_API DType promote_types(DType a, DType b) noexcept;

/// True if an in-place operation may write `from` to `to`: the category may not decrease (floating
/// > integral > bool).
[[nodiscard]] GANTRY_API bool can_cast(DType from, DType to) noexcept;

/// The dtype of an operation on the operands.
///
/// The priorities are: tensors with dims, 0-dim tensors, numbers. An operand of lower priority
/// counts only if its category is higher: `i32_tensor + 2` is i32, and `i32_tensor + 2.5` is f32.
[[nodiscard]] GANTRY_API DType result_type(std::span<const Operand> operands);
[[nodiscard]] GANTRY_API DType result_type(const Operand& a, const Operand& b);

}  // namespace gantry
