#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

#include <gantry/core/export.hpp>

namespace gantry {

/// The operation of a reduction.
///
/// Every reduction is the left fold over ranks (or list positions) 0, 1, …, n-1: f16 and bf16 are
/// accumulated in f32 and rounded once at the end, f32 and f64 natively, integers wrap. So the
/// bits do not depend on the number of processes, the algorithm, the size, or the platform.
/// avg divides the accumulator by n before the final rounding and needs a floating dtype; band, bor
/// and bxor need an integer dtype or bool.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg, band, bor, bxor };

/// "sum", "prod", …
[[nodiscard]] GANTRY_API std::string_view name(ReduceOp op) noexcept;

/// Writes name().
GANTRY_API std::ostream& operator<<(std::ostream& out, ReduceOp op);

}  // namespace gantry
