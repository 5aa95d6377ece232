#pragma once

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The promoted type of two dtypes, by PyTorch's table. Two integers give the wider one; i8 and u8
/// give i16. An integer and a floating type give the floating type. f16 and bf16 give f32. bool is
/// lowest.
[[nodiscard]] GANTRY_API DType promote_types(DType a, DType b) noexcept;

/// True if an in-place operation may write a result of dtype `from` to a tensor of dtype `to`. The
/// category of `to` is at least that of `from` (floating > integral > bool).
[[nodiscard]] GANTRY_API bool can_cast(DType from, DType to) noexcept;

/// The dtype in which an operation computes: the promoted type of its operands.
///
/// Tensors with dims rank first, then 0-dim tensors, then numbers. A lower rank changes the dtype
/// only if its category is higher (floating > integral > bool). `i32_tensor + 2` is thus i32, and
/// `i32_tensor + 2.5` is f32.
[[nodiscard]] GANTRY_API DType result_type(std::span<const Operand> operands);
[[nodiscard]] GANTRY_API DType result_type(const Operand& a, const Operand& b);

}  // namespace gantry
