#include "kernels/multicast.hpp"

#include <fmt/format.h>

#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/multicast_plan.hpp"

namespace gantry::kernels {

namespace {

void check_sim_regions(int device, std::span<const CopyRegion> regions,
                       std::span<const std::ptrdiff_t> shifts) {
  for (const CopyRegion& region : regions) {
    ::gantry::sim::check_device_access(device, region.from, region.bytes);
    ::gantry::sim::check_device_access(device, region.to, region.bytes);
    for (const std::ptrdiff_t shift : shifts) {
      ::gantry::sim::check_device_access(device, static_cast<std::byte*>(region.to) + shift,
                                         region.bytes);
    }
  }
}

}  // namespace

void multicast(const Target& target, std::span<const CopyRegion> regions,
               std::span<const std::ptrdiff_t> shifts) {
  if (shifts.size() >= static_cast<std::size_t>(kMaxMulticastCopies)) {
    throw InvalidArgument(fmt::format("multicast: expected at most {} copies, but got {}",
                                      kMaxMulticastCopies, shifts.size() + 1));
  }
  std::vector<CopyRegion> filled;
  filled.reserve(regions.size());
  for (const CopyRegion& region : regions) {
    if (region.bytes > 0) filled.push_back(region);
  }
  if (filled.empty()) return;
  if (!target.is_cpu() && platform() == Platform::cuda) {
    const DeviceGuard guard(target.device());
    cuda::multicast(target.stream().native_handle(), filled, shifts);
    return;
  }
  if (!target.is_cpu()) check_sim_regions(target.device().index, filled, shifts);
  submit(
      target, {},
      [kept = std::move(filled), moved = std::vector(shifts.begin(), shifts.end())] {
        host::multicast(kept, moved);
      },
      [](void*) {});
}

}  // namespace gantry::kernels
