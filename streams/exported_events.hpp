// Events that other processes may still open.
#pragma once

#include <cstddef>

#include <gantry/device/driver.hpp>

namespace gantry {

/// Keeps interprocess events whose owner is gone: what another process does with an event that was
/// destroyed here is undefined, and nobody tells when it has opened it.
///
/// The latest kKept stay; of older ones those that are reached are destroyed, since the driver has
/// room for some 22,000 in a process.
/// Thread safety: any thread.
class ExportedEvents {
 public:
  static constexpr std::size_t kKept = 4096;

  static void keep(NativeEvent event) noexcept;
};

}  // namespace gantry
