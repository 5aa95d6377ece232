#pragma once

#include <string>
#include <vector>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The driver in use, or nullptr before initialisation and in a bad fork. Never throws: for
/// destructors.
[[nodiscard]] Driver* active_driver() noexcept;

/// Puts `decorate(driver)` in front of whatever driver is in use, now and later; nullptr takes the
/// decorator away. What `decorate` returns must live as long as the process. Calls that other
/// threads are in end on the driver that they began on.
void decorate_driver(Driver* (*decorate)(Driver&));

/// Number of visible devices, also in a bad fork: for tables that destructors may make or walk.
[[nodiscard]] int table_size();

/// Throws InvalidArgument unless `index` names a visible device, NotSupported if there is none.
/// Initialises the platform. Returns the driver.
Driver& driver_for(int index);

}  // namespace gantry
