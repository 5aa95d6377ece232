// Inputs of all ranks, and all reductions of them by the definition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/collectives/scalar_reduce.hpp"

namespace gantry::testing {

/// An operator, and the factor of every input.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double scale = 1;

  auto operator<=>(const Reduction&) const = default;
};

/// All reductions that are defined for `dtype`. Sums and averages of floats may have a factor.
inline std::vector<Reduction> reductions_of(DType dtype) {
  std::vector<Reduction> all;
  for (const ReduceOp op : kAllOps) {
    if (!is_defined(op, dtype)) continue;
    all.push_back({op, 1});
    const bool is_sum = op == ReduceOp::sum || op == ReduceOp::avg;
    if (is_sum && is_floating_point(dtype)) all.push_back({op, 0.3});
  }
  return all;
}

/// One array of `count` elements per rank. The same ones each time.
class RankInputs {
 public:
  RankInputs(int ranks, DType dtype, std::int64_t count) : dtype_(dtype), count_(count) {
    for (int rank = 0; rank < ranks; ++rank) {
      inputs_.push_back(random_elements(dtype, static_cast<std::size_t>(count),
                                        static_cast<std::uint32_t>(rank + 70)));
    }
  }

  /// The elements of `rank` from `first` on.
  [[nodiscard]] const std::byte* input(int rank, std::int64_t first = 0) const {
    return at(inputs_[static_cast<std::size_t>(rank)], first);
  }
  /// Elements from `first` on of the reduction of all ranks' inputs.
  const std::byte* reduced(const Reduction& by, std::int64_t first = 0) {
    const auto [found, is_new] = reduced_.try_emplace(by);
    if (is_new) {
      found->second =
          reduce_scalars(by.op, dtype_, inputs_, 0, static_cast<std::size_t>(count_), by.scale);
    }
    return at(found->second, first);
  }

 private:
  [[nodiscard]] const std::byte* at(const Bytes& bytes, std::int64_t first) const {
    return bytes.data() + static_cast<std::size_t>(first) * element_size(dtype_);
  }

  DType dtype_;
  std::int64_t count_;
  std::vector<Bytes> inputs_;
  std::map<Reduction, Bytes> reduced_;
};

}  // namespace gantry::testing
