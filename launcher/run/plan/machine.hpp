#pragma once

#include <string>

#include "launcher/env/environment.hpp"
#include "launcher/run/options/placement_options.hpp"
#include "launcher/run/plan/device_inventory.hpp"

namespace gantry::launcher {

/// The facts that the planner knows about the machine.
struct Machine {
  DeviceInventory inventory;
  std::string host;
};

/// Discovers the devices and CPUs that a plan with these options needs. Sets
/// HWLOC_PLUGINS_BLACKLIST in this process. Throws: InvalidArgument.
[[nodiscard]] Machine discover_machine(const PlacementOptions& options,
                                       const Environment& environment);

}  // namespace gantry::launcher
