#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The driver in use, or nullptr before initialisation and in a bad fork. Never throws: for
/// destructors.
[[nodiscard]] Driver* active_driver() noexcept;

/// Drivers in front of the platform's, from it outwards.
enum class DriverLayer : std::uint8_t { trace, sanitizer, sync_debug };
inline constexpr std::size_t kDriverLayers = 3;

/// Returns a driver in front of `driver`, or `driver` itself. What it returns must live as long as
/// the process. Must not call driver().
using DriverDecorator = Driver* (*)(Driver& driver);

/// Puts `decorate(driver)` in front of whatever driver is in use, now and later; nullptr takes the
/// layer's decorator away. Calls that other threads are in end on the driver that they began on.
void decorate_driver(DriverLayer layer, DriverDecorator decorate);

/// Number of visible devices, also in a bad fork: for tables that destructors may make or walk.
[[nodiscard]] int table_size();

/// Throws InvalidArgument unless `index` names a visible device, NotSupported if there is none.
/// Initialises the platform. Returns the driver.
Driver& driver_for(int index);

}  // namespace gantry
