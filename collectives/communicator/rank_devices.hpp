// The devices of the ranks.
#pragma once

#include <string_view>

#include <gantry/device/device.hpp>
#include <gantry/job/process_identity.hpp>

#include "collectives/rank_table.hpp"

namespace gantry {

// The only visible device, the launcher's choice, or the device of the local rank. `maker` begins
// errors. Throws: InvalidArgument.
Device choose_device(const ProcessIdentity& identity, std::string_view maker);

// Makes `device` current, binds the process as GANTRY_BIND says, and names the device in uncaught
// errors.
// Throws: InvalidArgument if GANTRY_BIND cannot be met.
void settle_process(const ProcessIdentity& identity, Device device);

// Rank 0 warns, in one line, if ranks whose devices were chosen for them use one device. `maker` is
// the public function. Silent where sharing is the user's choice: under glaunch, beside a server of
// MPS, and on simulated devices unless CUDA_VISIBLE_DEVICES hides some.
void warn_shared_devices(const RankTable& ranks, const ProcessIdentity& identity,
                         std::string_view maker);

}  // namespace gantry
