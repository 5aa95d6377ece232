#include "kernels/fan.hpp"

#include <fmt/format.h>

#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/fan_plan.hpp"

namespace gantry::kernels {

namespace {

void check_sim_runs(int device, std::span<const CopyRegion> runs,
                    std::span<const std::ptrdiff_t> shifts) {
  for (const CopyRegion& run : runs) {
    ::gantry::sim::check_device_access(device, run.from, run.bytes);
    ::gantry::sim::check_device_access(device, run.to, run.bytes);
    for (const std::ptrdiff_t shift : shifts) {
      ::gantry::sim::check_device_access(device, static_cast<std::byte*>(run.to) + shift,
                                         run.bytes);
    }
  }
}

}  // namespace

void fan(const Target& target, std::span<const CopyRegion> runs,
         std::span<const std::ptrdiff_t> shifts) {
  if (shifts.size() >= static_cast<std::size_t>(kMaxFanCopies)) {
    throw InvalidArgument(fmt::format("fan: at most {} copies expected, but got {}", kMaxFanCopies,
                                      shifts.size() + 1));
  }
  std::vector<CopyRegion> filled;
  filled.reserve(runs.size());
  for (const CopyRegion& run : runs) {
    if (run.bytes > 0) filled.push_back(run);
  }
  if (filled.empty()) return;
  if (!target.is_cpu() && platform() == Platform::cuda) {
    const DeviceGuard guard(target.device());
    cuda::fan(target.stream().native_handle(), filled, shifts);
    return;
  }
  if (!target.is_cpu()) check_sim_runs(target.device().index, filled, shifts);
  submit(
      target, {},
      [kept = std::move(filled), moved = std::vector(shifts.begin(), shifts.end())] {
        host::fan(kept, moved);
      },
      [](void*) {});
}

}  // namespace gantry::kernels
