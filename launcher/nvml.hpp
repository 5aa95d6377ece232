#pragma once

#include <string>
#include <vector>

#include "launcher/device_inventory.hpp"

namespace gantry::launcher {

/// What NVML says about this machine.
struct NvmlReport {
  /// Devices in PCI order, MIG instances in place of the GPU that they divide.
  std::vector<InventoryDevice> devices;
  std::string problem;  ///< why there are none, if NVML is absent or refuses
  std::vector<std::string> warnings;
};

/// Loads the NVML library at `path` and lists its devices.
[[nodiscard]] NvmlReport read_nvml(const std::string& path);

}  // namespace gantry::launcher
