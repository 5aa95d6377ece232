#pragma once

#include <gantry/core/dtype.hpp>
#include <gantry/core/export.hpp>

namespace gantry {

/// The promoted type of two dtypes, by PyTorch's table. Two integers give the wider one; i8 and u8
/// give i16. An integer and a floating type give the floating type. f16 and bf16 give f32. bool is
/// lowest. u16, u32 and u64 promote with floating types alone, and f8e4m3 and f8e5m2 with none.
/// Throws: DTypeError for dtypes that do not promote.
/// @since 0.1
[[nodiscard]] GANTRY_API DType promote_types(DType a, DType b);

/// True if an in-place operation may write a result of dtype `from` to a tensor of dtype `to`. The
/// category of `to` is at least that of `from` (floating > integral > bool).
/// @since 0.1
[[nodiscard]] GANTRY_API bool can_cast(DType from, DType to) noexcept;

}  // namespace gantry
