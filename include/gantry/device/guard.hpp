#pragma once

#include <optional>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// Makes a device current for a scope. The destructor restores the previous device, also if other
/// code had chosen it with cudaSetDevice.
///
/// A CPU device leaves the current device alone. Neither copyable nor movable.
/// @code
/// {
///   const DeviceGuard guard("cuda:1");
///   const Tensor x = ones({4}, "cuda");  // on cuda:1
/// }  // the device of before is current again
/// @endcode
/// @since 0.1
class GANTRY_API DeviceGuard {
 public:
  /// Makes `device` current. Throws: InvalidArgument if there is no such device.
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  /// Makes another device current. The destructor still restores original_device().
  void set_device(Device device);
  /// The device that was current when the guard was made.
  [[nodiscard]] Device original_device() const noexcept { return Device::cuda(original_); }
  /// The device that this guard made current.
  [[nodiscard]] Device current_device() const noexcept { return current_; }

 private:
  int original_ = -1;
  bool changed_ = false;
  Device current_;
};

/// A DeviceGuard that does nothing until it is given a device.
/// @code
/// OptionalDeviceGuard guard;
/// if (device_count() > 1) guard.set_device("cuda:1");
/// @endcode
/// @since 0.1
class GANTRY_API OptionalDeviceGuard {
 public:
  OptionalDeviceGuard() = default;
  /// Makes `device` current if there is one. Throws: InvalidArgument as DeviceGuard.
  explicit OptionalDeviceGuard(std::optional<Device> device);

  /// Makes `device` current, from now to the end of the scope.
  void set_device(Device device);
  /// The device that this guard made current; none if it did nothing.
  [[nodiscard]] std::optional<Device> current_device() const noexcept;
  /// The device that was current before; none if the guard did nothing.
  [[nodiscard]] std::optional<Device> original_device() const noexcept;

 private:
  std::optional<DeviceGuard> guard_;
};

}  // namespace gantry
