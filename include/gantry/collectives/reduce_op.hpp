#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

#include <gantry/core/export.hpp>

namespace gantry {

/// The operation of a reduction.
///
/// Every reduction combines ranks (or list positions) 0, 1, …, n-1 in this order. f16 and bf16
/// accumulate in f32 and are rounded once at the end. f32 and f64 accumulate in their own type.
/// Integers wrap. The bits therefore depend on the inputs and their order only, not on processes,
/// algorithm, size or platform.
/// DTypes: avg needs a floating dtype; it divides the accumulator by n before the final rounding.
/// band, bor and bxor need an integer dtype or bool.
/// @since 0.1
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg, band, bor, bxor };

/// "sum", "prod", …
/// @since 0.1
[[nodiscard]] GANTRY_API std::string_view name(ReduceOp op) noexcept;

/// Writes name().
GANTRY_API std::ostream& operator<<(std::ostream& out, ReduceOp op);

}  // namespace gantry
