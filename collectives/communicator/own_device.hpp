#pragma once

#include <string_view>

#include <gantry/device/device.hpp>
#include <gantry/job/process_identity.hpp>

namespace gantry {

// The only visible device, the launcher's choice, or the device of the local rank. `maker` begins
// errors. Throws: InvalidArgument.
Device choose_device(const ProcessIdentity& identity, std::string_view maker);

// Makes `device` current, binds the process as GANTRY_BIND says, and names the device in uncaught
// errors.
// Throws: InvalidArgument if GANTRY_BIND cannot be met.
void settle_process(const ProcessIdentity& identity, Device device);

}  // namespace gantry
