// Checks of a transport's reductions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/collectives/host/host_group.hpp"

namespace gantry::testing {

inline Descriptor describe(CollectiveKind kind, std::size_t count, DType dtype, int root = -1,
                           ReduceOp op = ReduceOp::sum) {
  return {.count = static_cast<std::int64_t>(count),
          .root = root,
          .kind = kind,
          .op = op,
          .dtype = dtype};
}

inline Bytes slice(const Bytes& bytes, std::size_t first, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

inline std::vector<Bytes> inputs_of(int ranks, DType dtype, std::size_t count) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(random_elements(dtype, count, static_cast<std::uint32_t>(r + 70)));
  }
  return inputs;
}

/// Runs every reduction on a transport, and compares the bits with the bits of the definition.
inline void check_reductions(HostRank& self, Transport& layered, DType dtype, ReduceOp op,
                             std::size_t count, double scale = 1) {
  const auto ranks = static_cast<std::size_t>(self.size);
  const auto own = static_cast<std::size_t>(self.rank);
  const std::size_t width = element_size(dtype);
  const auto inputs = inputs_of(self.size, dtype, count * ranks);
  std::vector<Bytes> heads;
  for (const Bytes& input : inputs) heads.push_back(slice(input, 0, count * width));
  const Bytes expected = reduce_scalars(op, dtype, heads, 0, count, scale);
  const auto run = [&](CollectiveKind kind, int root, const Bytes& in, std::size_t out_bytes) {
    Descriptor what = describe(kind, count, dtype, root, op);
    what.scale = scale;
    return self.run_on(layered, what, in, out_bytes);
  };
  SCOPED_TRACE(describe(CollectiveKind::all_reduce, count, dtype, -1, op).str());
  EXPECT_EQ(run(CollectiveKind::all_reduce, -1, heads[own], count * width), expected);
  const int root = self.size - 2;
  const bool is_root = self.rank == root;
  const Bytes untouched(16, std::byte{0x5a});
  EXPECT_EQ(run(CollectiveKind::reduce, root, heads[own], is_root ? count * width : 16),
            is_root ? expected : untouched);
  EXPECT_EQ(run(CollectiveKind::reduce_scatter, -1, inputs[own], count * width),
            reduce_scalars(op, dtype, inputs, own * count, count, scale));
}

}  // namespace gantry::testing
