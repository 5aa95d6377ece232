// Names of simulated devices. Pure: the launcher plans with it and never makes a device.
#pragma once

#include <string>
#include <vector>

#include <gantry/machine/visible_devices.hpp>

namespace gantry {

/// UUID of the simulated device with this physical index.
[[nodiscard]] std::string sim_uuid(int physical);
/// PCI bus id of that device.
[[nodiscard]] std::string sim_pci_bus_id(int physical);
/// Identities that CUDA_VISIBLE_DEVICES can name on a machine of `count` simulated devices.
[[nodiscard]] std::vector<DeviceIdentity> sim_device_identities(int count);

}  // namespace gantry
