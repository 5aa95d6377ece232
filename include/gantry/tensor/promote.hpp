#pragma once

#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// The type that holds both: PyTorch's table. i8 with u8 gives i16, integers the wider one, an
/// integer with a floating type that floating type, f16 with bf16 gives f32; bool is lowest.
[[nodiscard]] DType promote_types(DType a, DType b);

/// True if `from` may be written to `to` in place: the category must not get lower (floating >
/// integral > bool).
[[nodiscard]] bool can_cast(DType from, DType to);

/// Element type of an operation on the operands.
///
/// Three priorities: tensors with dims, 0-dim tensors, numbers. A lower priority decides only if
/// its category is higher, so `i32_tensor + 2` stays i32 and `i32_tensor + 2.5` is f32.
[[nodiscard]] DType result_type(std::span<const Operand> operands);
[[nodiscard]] DType result_type(const Operand& a, const Operand& b);

}  // namespace gantry
