#pragma once

#include <cstddef>
#include <span>

#include "kernels/fan.hpp"

// What fan() is made of on each side.
namespace gantry::kernels {

namespace host {
void fan(std::span<const CopyRegion> runs, std::span<const std::ptrdiff_t> shifts);
}  // namespace host

namespace cuda {
void fan(void* stream, std::span<const CopyRegion> runs, std::span<const std::ptrdiff_t> shifts);
}  // namespace cuda

}  // namespace gantry::kernels
