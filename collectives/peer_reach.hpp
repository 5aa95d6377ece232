#pragma once

#include <span>

#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// True if kernels on `from` can read and write memory of `to`; enables peer access at the first
// question. Devices are resolved.
bool reaches(Device from, Device to);

// Makes the current streams of `waiting` wait for all work submitted to the current stream of `on`.
void order_after(Device waiting, Device on);

// Makes the current stream of every device wait for those of all others.
void order_all(std::span<const Device> devices);

}  // namespace gantry
