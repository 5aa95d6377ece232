// The slices of one rank: its inputs, outputs and expected results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/bench/operation.hpp"

namespace gantry::bench {

/// Sizes of a rank's tensors, in parts of `count` elements; 0: it passes none. What is overwritten
/// in place is the output.
struct Parts {
  int input = 0;
  int output = 0;
};
[[nodiscard]] Parts parts_of(const Case& what, int rank, int ranks);

/// This rank's part in pairs of sender and receiver; the last rank of an odd number has none.
struct Pair {
  int peer = -1;
  bool sends = false;
};
[[nodiscard]] Pair pair_of(int rank, int ranks);

/// How many elements of a rank's output at `got`, on the host, are not what the definition says of
/// inputs that are source_pattern(rank). A result of a reduction may be off by `tolerance`.
[[nodiscard]] std::int64_t count_wrong_output(const Case& what, int rank, int ranks,
                                              const std::byte* got, double tolerance = 0);

}  // namespace gantry::bench
