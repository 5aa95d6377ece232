// The functions of simulated devices that the platform calls.
#pragma once

#include <memory>
#include <vector>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// A machine of `devices` simulated devices, all visible. Capacity: GANTRY_SIM_MEMORY.
/// Throws: InvalidArgument if there are fewer than 1 or more than 64.
[[nodiscard]] std::unique_ptr<Driver> make_sim_driver(int devices);
/// A machine of which the devices with these physical indices are visible, in this order.
[[nodiscard]] std::unique_ptr<Driver> make_sim_driver(const std::vector<int>& visible);

/// As is_idle(), for a stream of the active simulated driver.
[[nodiscard]] bool is_sim_stream_idle(NativeStream stream) noexcept;

}  // namespace gantry
