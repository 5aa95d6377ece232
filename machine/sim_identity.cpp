#include "machine/sim_identity.hpp"

#include <fmt/format.h>

namespace gantry {

std::string sim_uuid(int physical) {
  return fmt::format("GPU-51a051a0-0000-4000-8000-{:012x}", physical);
}

std::string sim_pci_bus_id(int physical) {
  return fmt::format("0000:{:02x}:00.0", 0x10 + physical);
}

std::vector<DeviceIdentity> sim_device_identities(int count) {
  std::vector<DeviceIdentity> identities;
  for (int i = 0; i < count; ++i) identities.push_back({sim_uuid(i), sim_pci_bus_id(i)});
  return identities;
}

}  // namespace gantry
