#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry {

/// Names of one physical device that CUDA_VISIBLE_DEVICES may use.
/// @since 0.1
struct DeviceIdentity {
  std::string uuid;        ///< "GPU-…", or "MIG-…" for a MIG instance
  std::string pci_bus_id;  ///< informational
};

/// A token of CUDA_VISIBLE_DEVICES that selects no device.
/// @since 0.1
struct DroppedToken {
  std::string token;   ///< text between the commas
  std::string reason;  ///< why it selects no device
};

/// Outcome of parsing CUDA_VISIBLE_DEVICES: `auto [visible, dropped] = …`.
/// @since 0.1
struct GANTRY_API VisibleDevices {
  std::vector<int> visible;           ///< physical indices in the order of cuda:0, cuda:1, …
  std::vector<DroppedToken> dropped;  ///< tokens that select no device, in order

  /// True if a device was named twice: the driver refuses to start. `dropped` holds that token.
  [[nodiscard]] bool invalid() const noexcept;
};

/// Applies the CUDA driver's own rules to a value of CUDA_VISIBLE_DEVICES.
///
/// A pure function: reads no environment and no device. `all` holds the physical devices in CUDA
/// order. The first token that names no device ends the list. If a device is named twice, no device
/// is visible.
/// @since 0.1
[[nodiscard]] GANTRY_API VisibleDevices parse_visible_devices(std::string_view value,
                                                              std::span<const DeviceIdentity> all);

/// True if the CUDA driver accepts `value` as CUDA_DEVICE_ORDER. For any other value it reports an
/// invalid device, for every CUDA_VISIBLE_DEVICES.
/// @since 0.1
[[nodiscard]] GANTRY_API bool is_valid_device_order(std::string_view value) noexcept;

}  // namespace gantry
