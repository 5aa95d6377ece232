#pragma once

#include <cstdint>
#include <vector>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Dense arrays that become one, row by row: a row of the output is a row of each input, one behind
// the other. Lengths are counts of words of `word_bytes`, which divide every row. A POD.
struct JoinPlan {
  static constexpr int kMostInputs = 16;

  void* out = nullptr;
  const void* inputs[kMostInputs] = {};
  std::int64_t starts[kMostInputs + 1] =
      {};  // of each input in a row of the output, and its length
  std::int64_t rows = 0;
  std::int32_t count = 0;  // inputs
  std::int32_t word_bytes = 0;

  [[nodiscard]] std::int64_t length() const { return starts[count]; }
};

// Copies `inputs` along `dim` into `out` and returns true. Returns false, without an effect, if an
// array is not dense, another way is faster, or there are too many inputs or elements.
// Preconditions: one dtype; the sizes fit; every array is on the target's device.
[[nodiscard]] bool join(const Target& target, const TensorRef& out,
                        const std::vector<TensorRef>& inputs, int dim);

namespace host {
void join(const JoinPlan& plan);
}
namespace cuda {
void join(void* stream, const JoinPlan& plan);
}

}  // namespace gantry::kernels
