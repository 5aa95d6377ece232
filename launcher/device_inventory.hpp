#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gantry::launcher {

/// Where a device inventory comes from.
enum class InventorySource { none, simulated, nvml };

/// One device that ranks may use.
struct InventoryDevice {
  std::string name;
  std::string uuid;        ///< "GPU-…" or "MIG-…"
  std::string pci_bus_id;  ///< "0000:1b:00.0"
};

/// The devices that a process started from here sees, in the order of cuda:0, cuda:1, …
struct DeviceInventory {
  InventorySource source = InventorySource::none;
  std::vector<InventoryDevice> devices;
  std::string why_none;  ///< one clause, if there are no devices
  std::vector<std::string> warnings;
};

/// Reads one environment variable; none if it is unset.
using VariableReader = std::function<std::optional<std::string>(const char*)>;

/// Finds the visible devices: of GANTRY_SIM_DEVICES simulated ones, or else of those that NVML
/// shows, what CUDA_VISIBLE_DEVICES names. Never initialises CUDA. NVML comes from
/// GANTRY_NVML_PATH, or else libnvidia-ml.so.1.
/// Throws: InvalidArgument if a variable names a device that does not exist or names one twice.
[[nodiscard]] DeviceInventory discover_devices(const VariableReader& variable);

/// Name of a source: "none", "simulated" or "nvml".
[[nodiscard]] std::string_view name(InventorySource source);

}  // namespace gantry::launcher
