#include "kernels/peers/multicast.hpp"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/peers/multicast_plan.hpp"

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

std::vector<sanitizer::Use> uses_of(std::span<const CopyRegion> regions,
                                    std::span<const std::ptrdiff_t> shifts) {
  std::vector<sanitizer::Use> uses;
  for (const CopyRegion& region : regions) {
    uses.push_back(sanitizer::reads({region.from, region.bytes}));
    uses.push_back(sanitizer::writes({region.to, region.bytes}));
    for (const std::ptrdiff_t shift : shifts) {
      uses.push_back(sanitizer::writes({static_cast<std::byte*>(region.to) + shift, region.bytes}));
    }
  }
  return uses;
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
  std::optional<CheckedSubmission> checked;
  if (sanitizer::is_on()) [[unlikely]] {
    checked.emplace("multicast", target, uses_of(filled, shifts));
  }
  std::vector<ArrayOperands> arrays;
  if (has_observer(kOpObservers)) [[unlikely]] {
    for (const CopyRegion& region : filled) {
      arrays.push_back({shifts.size() + 2, static_cast<std::int64_t>(region.bytes), DType::u8});
    }
  }
  const KernelName kernel("multicast", arrays);
  if (!target.is_cpu() && platform() == Platform::cuda) {
    const ObservedOp observed(target, {}, kernel.name, kernel.arrays);
    const DeviceGuard guard(target.device());
    cuda::multicast(target.stream().native_handle(), filled, shifts);
    if (checked) checked->commit();
    return;
  }
  if (!target.is_cpu()) check_sim_regions(target.device().index, filled, shifts);
  submit(
      kernel, target, {},
      [kept = std::move(filled), moved = std::vector(shifts.begin(), shifts.end())] {
        host::multicast(kept, moved);
      },
      [](void*) {});
  if (checked) checked->commit();
}

}  // namespace gantry::kernels
