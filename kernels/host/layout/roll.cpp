#include "kernels/layout/roll.hpp"

#include <cstring>

namespace gantry::kernels::host {

void roll_rows(const RollPlan& plan) {
  const std::size_t bytes = element_size(plan.dtype);
  const auto front = static_cast<std::size_t>(plan.front) * bytes;
  const std::size_t rest = static_cast<std::size_t>(plan.length) * bytes - front;
  auto* out = static_cast<std::byte*>(plan.out);
  const auto* in = static_cast<const std::byte*>(plan.in);
  for (std::int64_t done = 0; done < plan.numel; done += plan.length) {
    std::memcpy(out, in + rest, front);
    std::memcpy(out + front, in, rest);
    out += front + rest;
    in += front + rest;
  }
}

}  // namespace gantry::kernels::host
