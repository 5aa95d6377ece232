#include "launcher/run/plan/device_inventory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/machine/visible_devices.hpp>

namespace gantry::launcher {
namespace {

// Applies CUDA_VISIBLE_DEVICES as the driver will, but does not lose a device in silence.
void keep_visible(const std::string& value, DeviceInventory& inventory) {
  std::vector<DeviceIdentity> all;
  for (const machine::Topology::Gpu& gpu : inventory.machine.gpus)
    all.push_back({gpu.uuid, gpu.bus_id});
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
  inventory.machine = machine::keep_gpus(inventory.machine, parsed.visible);
  inventory.is_order_given = true;
  if (parsed.visible.empty()) {
    inventory.why_none = fmt::format("CUDA_VISIBLE_DEVICES is '{}'", value);
  }
}

}  // namespace

std::string DeviceInventory::source() const {
  return machine.gpus.empty() ? "none" : std::string(name(machine.gpu_source));
}

DeviceInventory discover_devices(const machine::TopologyOptions& options,
                                 const VariableReader& variable) {
  DeviceInventory inventory;
  inventory.machine = machine::discover_topology(options);
  inventory.why_none = inventory.machine.why_no_gpu;
  inventory.warnings = inventory.machine.warnings;
  if (options.skip_gpus || inventory.machine.gpus.empty()) return inventory;

  const auto order = variable("CUDA_DEVICE_ORDER");
  if (order && !is_valid_device_order(*order)) {
    throw InvalidArgument(fmt::format(
        "CUDA_DEVICE_ORDER: expected FASTEST_FIRST or PCI_BUS_ID, but got '{}'", *order));
  }
  const auto visible = variable("CUDA_VISIBLE_DEVICES");
  // The variable is about the devices here, not those that a file describes.
  if (!visible || inventory.machine.gpu_source == machine::FactSource::file) return inventory;
  const std::vector<machine::Topology::Gpu>& gpus = inventory.machine.gpus;
  const bool ordinals = !visible->starts_with("GPU-") && !visible->starts_with("MIG-");
  if (ordinals && order.value_or("") != "PCI_BUS_ID" &&
      std::any_of(gpus.begin(), gpus.end(), [&](const machine::Topology::Gpu& gpu) {
        return gpu.name != gpus.front().name;
      })) {
    inventory.warnings.emplace_back(
        "the GPUs differ: the numbers in CUDA_VISIBLE_DEVICES are taken in PCI order; set "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID or use UUIDs");
  }
  keep_visible(*visible, inventory);
  return inventory;
}

}  // namespace gantry::launcher
