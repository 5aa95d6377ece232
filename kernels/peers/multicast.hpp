#pragma once

#include <cstddef>
#include <span>

#include <gantry/extend/driver.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// The largest number of destinations of one region.
inline constexpr int kMaxMulticastCopies = 64;

// Copies every region to its `to`, and to `to + shift` for every shift, reading the source once.
//
// The shifts are the distances in bytes between several buffers of one layout. Sources and
// destinations are on the target's device or on peers with access enabled. No region overlaps a
// destination. One launch, with plain loads and stores, serves up to about a thousand regions.
void multicast(const Target& target, std::span<const CopyRegion> regions,
               std::span<const std::ptrdiff_t> shifts = {});

}  // namespace gantry::kernels
