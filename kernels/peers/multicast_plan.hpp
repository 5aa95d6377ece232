#pragma once

#include <cstddef>
#include <span>

#include "kernels/peers/multicast.hpp"

// The implementations of multicast().
namespace gantry::kernels {

namespace host {
void multicast(std::span<const CopyRegion> regions, std::span<const std::ptrdiff_t> shifts);
}  // namespace host

namespace cuda {
void multicast(void* stream, std::span<const CopyRegion> regions,
               std::span<const std::ptrdiff_t> shifts);
}  // namespace cuda

}  // namespace gantry::kernels
