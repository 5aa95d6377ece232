#include "launcher/device_inventory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/device/visible_devices.hpp>
#include <gantry/extend/parse_number.hpp>

#include "device/nvml/nvml.hpp"
#include "device/sim/sim_identity.hpp"

namespace gantry::launcher {
namespace {

constexpr int kMaxSimulated = 64;

// Devices in PCI order, MIG instances in place of the GPU that they divide.
void read_nvml(const std::string& path, DeviceInventory& inventory) {
  const Nvml nvml(path);
  const NvmlResult<int> count = nvml.device_count();
  if (!nvml.problem().empty()) {
    inventory.why_none = nvml.problem();
  } else if (!count) {
    inventory.why_none = fmt::format("NVML cannot count devices: {}", count.problem);
  }
  for (int i = 0; i < count.value_or(0); ++i) {
    const NvmlResult<NvmlDevice> gpu = nvml.device(i);
    if (!gpu) {
      inventory.warnings.push_back(fmt::format("GPU {} cannot be used: {}", i, gpu.problem));
      continue;
    }
    InventoryDevice device{nvml.name(*gpu).value_or(""), nvml.uuid(*gpu).value_or(""),
                           nvml.pci_bus_id(*gpu).value_or("")};
    if (!nvml.is_divided(*gpu).value_or(false)) {
      inventory.devices.push_back(std::move(device));
      continue;
    }
    for (const NvmlDevice instance : nvml.mig_instances(*gpu).value_or({})) {
      device.uuid = nvml.uuid(instance).value_or("");
      inventory.devices.push_back(device);
    }
  }
  if (inventory.devices.empty() && inventory.why_none.empty()) {
    inventory.why_none = "NVML shows no GPU";
  }
}

// Applies CUDA_VISIBLE_DEVICES as the driver will, but does not lose a device in silence.
void keep_visible(const std::string& value, DeviceInventory& inventory) {
  std::vector<DeviceIdentity> all;
  for (const InventoryDevice& device : inventory.devices) {
    all.push_back({device.uuid, device.pci_bus_id});
  }
  const VisibleDevices parsed = parse_visible_devices(value, all);
  if (parsed.invalid()) {
    throw InvalidArgument(fmt::format(
        "CUDA_VISIBLE_DEVICES={}: a device is named twice, and the driver would show none", value));
  }
  if (!parsed.dropped.empty()) {
    throw InvalidArgument(fmt::format(
        "CUDA_VISIBLE_DEVICES={}: '{}' shows no device ({}); {} devices are there", value,
        parsed.dropped.front().token, parsed.dropped.front().reason, all.size()));
  }
  std::vector<InventoryDevice> visible;
  for (const int index : parsed.visible) {
    visible.push_back(inventory.devices[static_cast<std::size_t>(index)]);
  }
  if (visible.empty()) inventory.why_none = fmt::format("CUDA_VISIBLE_DEVICES is '{}'", value);
  inventory.devices = std::move(visible);
}

}  // namespace

std::string_view name(InventorySource source) {
  switch (source) {
    case InventorySource::none:
      return "none";
    case InventorySource::simulated:
      return "simulated";
    case InventorySource::nvml:
      return "nvml";
  }
  return {};
}

DeviceInventory discover_devices(const VariableReader& variable) {
  DeviceInventory inventory;
  const std::string simulated = variable("GANTRY_SIM_DEVICES").value_or("");
  if (!simulated.empty()) {
    const auto count = env::parse_int(simulated, "GANTRY_SIM_DEVICES", 1, kMaxSimulated);
    inventory.source = InventorySource::simulated;
    for (DeviceIdentity& identity : sim_device_identities(static_cast<int>(count))) {
      inventory.devices.push_back(
          {"Simulated GPU", std::move(identity.uuid), std::move(identity.pci_bus_id)});
    }
  } else {
    inventory.source = InventorySource::nvml;
    read_nvml(variable("GANTRY_NVML_PATH").value_or(Nvml::kDefaultPath), inventory);
  }
  if (inventory.devices.empty()) {
    inventory.source = InventorySource::none;
    return inventory;
  }

  const auto order = variable("CUDA_DEVICE_ORDER");
  if (order && !is_valid_device_order(*order)) {
    throw InvalidArgument(fmt::format(
        "CUDA_DEVICE_ORDER: expected FASTEST_FIRST or PCI_BUS_ID, but got '{}'", *order));
  }
  if (const auto visible = variable("CUDA_VISIBLE_DEVICES")) {
    const auto differs = [&](const InventoryDevice& device) {
      return device.name != inventory.devices.front().name;
    };
    const bool ordinals = !visible->starts_with("GPU-") && !visible->starts_with("MIG-");
    if (ordinals && order.value_or("") != "PCI_BUS_ID" &&
        std::any_of(inventory.devices.begin(), inventory.devices.end(), differs)) {
      inventory.warnings.push_back(
          "the GPUs differ: the numbers in CUDA_VISIBLE_DEVICES are taken in PCI order; set "
          "CUDA_DEVICE_ORDER=PCI_BUS_ID or use UUIDs");
    }
    keep_visible(*visible, inventory);
  }
  if (inventory.devices.empty()) inventory.source = InventorySource::none;
  return inventory;
}

}  // namespace gantry::launcher
