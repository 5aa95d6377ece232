// The elements that ranks send, and the results by the definition of an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

namespace gantry::bench {

/// Elements that repeat without end; element i is period[i mod kPatternPeriod].
using Pattern = std::vector<std::byte>;

/// A prime, so that no part of a message begins where another one does.
inline constexpr std::int64_t kPatternPeriod = 4093;

/// The data of one rank: small random numbers of either sign, other ones for each rank.
[[nodiscard]] Pattern source_pattern(int rank, DType dtype);
/// The reduction of the data of ranks 0 … ranks-1 in this order, as ReduceOp defines it.
[[nodiscard]] Pattern reduced_pattern(int ranks, DType dtype, ReduceOp op);

/// Writes elements first … first + count - 1 to `out`.
void write_pattern(const Pattern& pattern, DType dtype, std::int64_t first, std::int64_t count,
                   std::byte* out);
/// How many of `count` elements at `got` differ in any bit from elements first … of the pattern.
[[nodiscard]] std::int64_t count_wrong(const Pattern& pattern, DType dtype, std::int64_t first,
                                       std::int64_t count, const std::byte* got);
/// The same for floating elements that differ by more than `tolerance`, or are not numbers.
[[nodiscard]] std::int64_t count_far(const Pattern& pattern, DType dtype, std::int64_t first,
                                     std::int64_t count, const std::byte* got, double tolerance);
/// How far a sum, product or average of `ranks` ranks' data in another order may be from
/// reduced_pattern; 0 where every order gives the same bits.
[[nodiscard]] double order_tolerance(int ranks, DType dtype, ReduceOp op);

}  // namespace gantry::bench
