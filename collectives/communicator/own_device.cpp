#include "collectives/communicator/own_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include <gantry/core/error.hpp>

#include "collectives/communicator/uncaught.hpp"
#include "core/env/settings.hpp"
#include "device/own_placement.hpp"

namespace gantry {

Device choose_device(const ProcessIdentity& identity, std::string_view maker) {
  init();
  const int count = device_count();
  if (count == 1) return Device::cuda(0);
  if (const auto named = env::kDevice.get()) {
    if (*named >= count) {
      throw InvalidArgument(fmt::format("{}: GANTRY_DEVICE is {}, but rank {} sees only {} devices",
                                        maker, *named, identity.rank, count));
    }
    return Device::cuda(static_cast<int>(*named));
  }
  if (identity.local_rank >= count) {
    std::string remedy = fmt::format("start at most {} ranks per node", count);
    const int wanted = std::max(identity.local_size, identity.local_rank + 1);
    if (platform() == Platform::simulated && wanted <= env::kSimDevices.most()) {
      remedy += fmt::format(", or set GANTRY_SIM_DEVICES={}", wanted);
    }
    throw InvalidArgument(fmt::format(
        "{}: local rank {} needs a device of its own, but this node shows only {} device(s); {}",
        maker, identity.local_rank, count, remedy));
  }
  return Device::cuda(identity.local_rank);
}

void settle_process(const ProcessIdentity& identity, Device device) {
  set_device(device);
  place_process({.rank = identity.rank,
                 .local_rank = identity.local_rank,
                 .local_size = identity.local_size,
                 .is_placed = identity.source == "glaunch"},
                device);
  report_uncaught_errors_on(device.str());
}

}  // namespace gantry
