#include <gantry/device/device.hpp>

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <optional>

#include <gantry/core/error.hpp>

#include "device/platform/platform.hpp"
#include "device/synchronizer.hpp"

namespace gantry {

namespace {

std::atomic<DeviceSynchronizer> synchronizer{nullptr};

[[noreturn]] void invalid_string(std::string_view text) {
  throw InvalidArgument(
      fmt::format("Invalid device string: '{}' (expected cpu, cuda or cuda:N)", text));
}

// The device that `text` names, if it names one.
std::optional<Device> parse(std::string_view text) noexcept {
  const auto colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (kind != "cpu" && kind != "cuda") return std::nullopt;
  const bool is_cpu = kind == "cpu";
  if (colon == std::string_view::npos) return is_cpu ? Device::cpu() : Device::cuda();
  const std::string_view digits = text.substr(colon + 1);
  int index = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, status] = std::from_chars(digits.data(), last, index);
  const bool leading_zero = digits.size() > 1 && digits.front() == '0';
  if (status != std::errc{} || end != last || index < 0 || leading_zero) return std::nullopt;
  if (is_cpu) return index == 0 ? std::optional(Device::cpu()) : std::nullopt;
  return Device::cuda(index);
}

}  // namespace

Device::Device(std::string_view text) {
  const std::optional<Device> named = parse(text);
  if (!named) invalid_string(text);
  *this = *named;
}

Device::Device(const char* text) {
  if (text == nullptr) {
    throw InvalidArgument("Invalid device string: a null pointer (expected cpu, cuda or cuda:N)");
  }
  *this = Device(std::string_view(text));
}

bool Device::is_named(std::string_view name) const noexcept { return parse(name) == *this; }

std::string Device::str() const {
  if (is_cpu()) return "cpu";
  return index < 0 ? "cuda" : "cuda:" + std::to_string(index);
}

Device Device::resolved() const {
  if (is_cpu()) {
    if (index != 0) {
      throw InvalidArgument(fmt::format("invalid device cpu:{}: the CPU's index is 0", index));
    }
    return *this;
  }
  if (index == -1) return gantry::current_device();
  (void)driver_for(index);
  return *this;
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

std::string_view name(Platform platform) noexcept {
  switch (platform) {
    case Platform::none:
      return "none";
    case Platform::cuda:
      return "cuda";
    case Platform::simulated:
      return "simulated";
  }
  return {};
}

std::ostream& operator<<(std::ostream& out, Platform platform) { return out << name(platform); }

Device current_device() { return Device::cuda(driver().current_device()); }

void set_device(Device device) {
  if (device.is_cpu()) {
    throw InvalidArgument("set_device: expected a CUDA device, but got " + device.str());
  }
  if (device.index == -1) {
    (void)driver();  // the current device stays current
    return;
  }
  driver_for(device.index).set_device(device.index);
}

void synchronize(Device device) {
  if (device.is_cpu()) {
    throw InvalidArgument("synchronize: expected a CUDA device, but got " + device.str());
  }
  const int index = device.resolved().index;
  if (const DeviceSynchronizer set = synchronizer.load(std::memory_order_acquire)) {
    set(index);
  } else {
    driver().synchronize_device(index);
  }
}

void set_device_synchronizer(DeviceSynchronizer function) noexcept {
  synchronizer.store(function, std::memory_order_release);
}

}  // namespace gantry
