#include <cstring>

#include "kernels/fan_plan.hpp"

namespace gantry::kernels::host {

void fan(std::span<const CopyRegion> runs, std::span<const std::ptrdiff_t> shifts) {
  for (const CopyRegion& run : runs) {
    std::memcpy(run.to, run.from, run.bytes);
    for (const std::ptrdiff_t shift : shifts) {
      std::memcpy(static_cast<std::byte*>(run.to) + shift, run.from, run.bytes);
    }
  }
}

}  // namespace gantry::kernels::host
