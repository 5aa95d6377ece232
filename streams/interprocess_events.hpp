// Interprocess events whose owner is destroyed.
#pragma once

#include <cstddef>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// Retains interprocess events whose owner is destroyed: another process may still open them, and
/// opening an event that the exporter destroyed is undefined.
///
/// The latest kRetained stay. Older ones are destroyed once they are reached, since the driver has
/// room for 4,096 interprocess events in a process.
/// Thread safety: any thread.
class InterprocessEvents {
 public:
  static constexpr std::size_t kRetained = 1024;

  static void retain(NativeEvent event) noexcept;
  /// Destroys the oldest event that is reached; false if there is none.
  static bool destroy_oldest();
};

}  // namespace gantry
