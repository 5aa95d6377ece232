#include "collectives/peers/line_order.hpp"

#include <fmt/format.h>

#include <string>

#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>

#include "machine/nvml/loaded_nvml.hpp"

namespace gantry {

namespace {

machine::NvmlResult<bool> has_nvlink(const machine::Nvml& nvml, const std::string& from,
                                     const std::string& to) {
  const auto first = nvml.device_by_uuid(from);
  if (!first) return {std::nullopt, first.problem};
  const auto second = nvml.device_by_uuid(to);
  if (!second) return {std::nullopt, second.problem};
  return nvml.has_nvlink(*first, *second);
}

}  // namespace

bool keeps_line_order(int device, int peer) {
  if (device == peer) return true;
  if (!driver().has_peer_atomics(device, peer)) return false;
  if (platform() != Platform::cuda) return true;
  const auto found =
      has_nvlink(machine::loaded_nvml(), device_properties(Device::cuda(device)).uuid,
                 device_properties(Device::cuda(peer)).uuid);
  if (!found && logging::enabled(logging::Level::info)) {
    logging::info(fmt::format(
        "collectives: ll128 is not used, since NVML does not tell whether an NVLink joins cuda:{} "
        "and cuda:{}: {}",
        device, peer, found.problem));
  }
  return found.value_or(false);
}

}  // namespace gantry
