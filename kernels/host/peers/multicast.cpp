#include <cstring>

#include "kernels/peers/multicast_plan.hpp"

namespace gantry::kernels::host {

void multicast(std::span<const CopyRegion> regions, std::span<const std::ptrdiff_t> shifts) {
  for (const CopyRegion& region : regions) {
    std::memcpy(region.to, region.from, region.bytes);
    for (const std::ptrdiff_t shift : shifts) {
      std::memcpy(static_cast<std::byte*>(region.to) + shift, region.from, region.bytes);
    }
  }
}

}  // namespace gantry::kernels::host
