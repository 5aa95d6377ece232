#pragma once

#include <cstddef>
#include <span>

#include <gantry/device/driver.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Most places that one run is copied to.
inline constexpr int kMaxFanCopies = 64;

// Copies every run, whose ends are on the target's device or on peers with access enabled, to its
// `to`, and again to `to + shift` for every shift (the distances between
// several buffers of one layout, in bytes), reading each source once. Runs do not overlap what any
// of them writes. One launch for up to about a thousand runs. Every bit arrives as it is.
void fan(const Target& target, std::span<const CopyRegion> runs,
         std::span<const std::ptrdiff_t> shifts = {});

}  // namespace gantry::kernels
