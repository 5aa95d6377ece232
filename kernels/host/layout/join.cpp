#include <cstddef>
#include <cstring>

#include "kernels/layout/join_plan.hpp"

namespace gantry::kernels::host {

void join(const JoinPlan& plan) {
  auto* out = static_cast<std::byte*>(plan.out);
  for (std::int64_t row = 0; row < plan.rows; ++row) {
    for (int k = 0; k < plan.count; ++k) {
      const auto bytes =
          static_cast<std::size_t>((plan.starts[k + 1] - plan.starts[k]) * plan.word_bytes);
      std::memcpy(
          out,
          static_cast<const std::byte*>(plan.inputs[k]) + static_cast<std::size_t>(row) * bytes,
          bytes);
      out += bytes;
    }
  }
}

}  // namespace gantry::kernels::host
