// The definition of a reproducible sum, in the simplest form.
#pragma once

#include <cstdint>
#include <vector>

#include <gantry/core/dtype.hpp>

namespace gantry::testing {

/// Reduction of `inputs` in list order with the accumulator of `dtype` and one final rounding;
/// elements are exact values of the dtype, held as f64.
inline std::vector<double> reduce_sum(const std::vector<std::vector<double>>& inputs, DType dtype) {
  std::vector<double> result(inputs.front().size());
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::size_t i = 0; i < result.size(); ++i) {
      if constexpr (is_floating_point(dtype_of<T>) && sizeof(T) <= 2) {
        float sum = static_cast<float>(inputs[0][i]);
        for (std::size_t r = 1; r < inputs.size(); ++r) sum += static_cast<float>(inputs[r][i]);
        result[i] = static_cast<float>(T(sum));
      } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
        T sum = static_cast<T>(inputs[0][i]);
        for (std::size_t r = 1; r < inputs.size(); ++r) sum += static_cast<T>(inputs[r][i]);
        result[i] = sum;
      } else if constexpr (std::is_same_v<T, bool>) {
        bool any = false;
        for (const auto& input : inputs) any = any || input[i] != 0;
        result[i] = any;
      } else {
        std::uint64_t sum = 0;
        for (const auto& input : inputs) {
          sum += static_cast<std::uint64_t>(static_cast<std::int64_t>(input[i]));
        }
        result[i] = static_cast<double>(static_cast<T>(sum));
      }
    }
  });
  return result;
}

}  // namespace gantry::testing
