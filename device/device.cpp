#include <gantry/device/device.hpp>

#include <fmt/format.h>

#include <atomic>
#include <charconv>

#include <gantry/core/error.hpp>

#include "device/platform.hpp"
#include "device/synchronizer.hpp"

namespace gantry {

namespace {

std::atomic<DeviceSynchronizer> synchronizer{nullptr};

[[noreturn]] void invalid_string(std::string_view text) {
  throw InvalidArgument(
      fmt::format("Invalid device string: '{}' (expected cpu, cuda or cuda:N)", text));
}

int parse_index(std::string_view digits, std::string_view text) {
  int index = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, status] = std::from_chars(digits.data(), last, index);
  const bool leading_zero = digits.size() > 1 && digits.front() == '0';
  if (status != std::errc{} || end != last || index < 0 || leading_zero) invalid_string(text);
  return index;
}

}  // namespace

Device::Device(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (kind != "cpu" && kind != "cuda") invalid_string(text);
  type = kind == "cpu" ? DeviceType::cpu : DeviceType::cuda;
  if (colon == std::string_view::npos) {
    index = is_cpu() ? 0 : -1;
    return;
  }
  index = parse_index(text.substr(colon + 1), text);
  if (is_cpu() && index != 0) invalid_string(text);
}

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
