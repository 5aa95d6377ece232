#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gantry/machine/topology.hpp>

namespace gantry::launcher {

/// The machine, and the devices that a process started from here sees.
struct DeviceInventory {
  /// The machine. Its GPUs are those visible, in the order of cuda:0, cuda:1, …
  machine::Topology machine;
  bool is_order_given = false;  ///< the user chose that order
  std::string why_none;         ///< one clause, if there are no devices
  std::vector<std::string> warnings;

  /// "nvml", "simulated", "file", or "none".
  [[nodiscard]] std::string source() const;
};

/// Reads one environment variable; none if it is unset.
using VariableReader = std::function<std::optional<std::string>(const char*)>;

/// Looks at the machine. The visible devices are GANTRY_SIM_DEVICES simulated ones, or else those
/// that NVML shows, as far as CUDA_VISIBLE_DEVICES names them. Never initialises CUDA.
/// Throws: InvalidArgument if a variable names a device that does not exist or names one twice, or
/// if the topology file cannot be used.
[[nodiscard]] DeviceInventory discover_devices(const machine::TopologyOptions& options,
                                               const VariableReader& variable);

}  // namespace gantry::launcher
