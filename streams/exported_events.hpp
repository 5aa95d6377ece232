// Events that other processes may still open.
#pragma once

#include <cstddef>

#include <gantry/device/driver.hpp>

namespace gantry {

/// Keeps interprocess events whose owner is gone: what another process does with an event that was
/// destroyed here is undefined, and nobody tells when it has opened it.
///
/// The latest kKept stay; of older ones those that are reached are destroyed, since the driver has
/// room for 4,096 interprocess events in a process.
/// Thread safety: any thread.
class ExportedEvents {
 public:
  static constexpr std::size_t kKept = 1024;

  static void keep(NativeEvent event) noexcept;
  /// Destroys the oldest event that is reached, where there is no room for another one; false if
  /// there is none.
  static bool give_up_oldest();
};

}  // namespace gantry
