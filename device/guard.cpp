#include <gantry/device/guard.hpp>

#include "device/platform/platform.hpp"

namespace gantry {

/// Note [Guards trust no cache]
/// Foreign code may call cudaSetDevice at any time. So a guard queries the current device when it
/// starts, always sets its device, and always restores the queried one. Setting and restoring are
/// cheap when nothing changes, because the driver first compares with CUDA's current device.

DeviceGuard::DeviceGuard(Device device) { set_device(device); }

DeviceGuard::~DeviceGuard() {
  if (!changed_) return;
  if (Driver* active = active_driver()) active->restore_device(original_);
}

void DeviceGuard::set_device(Device device) {
  if (device.is_cpu()) {
    current_ = device.resolved();
    return;
  }
  if (device.index != -1) (void)driver_for(device.index);
  Driver& active = driver();
  const int before = active.current_device();
  const int target = device.index == -1 ? before : device.index;
  active.set_device(target);
  if (!changed_) original_ = before;
  changed_ = true;
  current_ = Device::cuda(target);
}

OptionalDeviceGuard::OptionalDeviceGuard(std::optional<Device> device) {
  if (device) guard_.emplace(*device);
}

void OptionalDeviceGuard::set_device(Device device) {
  if (guard_) {
    guard_->set_device(device);
  } else {
    guard_.emplace(device);
  }
}

std::optional<Device> OptionalDeviceGuard::current_device() const noexcept {
  return guard_ ? std::optional(guard_->current_device()) : std::nullopt;
}

std::optional<Device> OptionalDeviceGuard::original_device() const noexcept {
  return guard_ ? std::optional(guard_->original_device()) : std::nullopt;
}

}  // namespace gantry
