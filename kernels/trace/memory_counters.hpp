// The counters of a device's memory in traces.
#pragma once

#include <gantry/device/device.hpp>

namespace gantry::kernels {

/// Adds the allocated and reserved bytes of `device` to the trace, if they changed since the last
/// call. Nothing for the CPU.
void record_memory_counters(Device device);
/// Lets the next call add the values of every device.
void forget_memory_counters();

}  // namespace gantry::kernels
