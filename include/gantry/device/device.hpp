#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry {

/// Kind of a device. Simulated devices are of kind cuda.
/// @since 0.1
enum class DeviceType : std::uint8_t {
  cpu,   ///< the host
  cuda,  ///< a GPU, real or simulated
};

/// A place where tensors live: the CPU or one GPU, real or simulated.
///
/// `index` counts the visible devices from 0. -1 stands for the calling thread's current device;
/// each use of the device looks it up. The CPU's index is always 0.
/// @code
/// const Device gpu("cuda:0");
/// const Device cpu = Device::cpu();
/// std::cout << gpu << " " << gpu.index;
/// @endcode
/// @since 0.1
struct GANTRY_API Device {
  /// CPU or GPU.
  DeviceType type = DeviceType::cpu;
  /// Position among the visible devices; -1: the current device.
  int index = 0;

  constexpr Device() = default;
  /// A kind alone: the CPU, or the calling thread's current GPU, as Device::cuda().
  constexpr Device(DeviceType device_type) noexcept
      : type(device_type), index(device_type == DeviceType::cpu ? 0 : -1) {}
  /// The device of this kind and index, which are not checked.
  constexpr Device(DeviceType device_type, int device_index) noexcept
      : type(device_type), index(device_index) {}
  /// Parses "cpu", "cuda" (current device) or "cuda:N". Throws: InvalidArgument for any other text,
  /// also for a null pointer.
  Device(std::string_view text);
  Device(const char* text);
  Device(const std::string& text) : Device(std::string_view(text)) {}
  /// Deleted: a number is no name of a device, and 0 would convert to a null string. Use
  /// Device::cuda(0).
  template <std::integral T>
  Device(T) = delete;

  /// The CPU.
  [[nodiscard]] static constexpr Device cpu() noexcept { return {DeviceType::cpu, 0}; }
  /// GPU `index`, or the current device for -1.
  [[nodiscard]] static constexpr Device cuda(int index = -1) noexcept {
    return {DeviceType::cuda, index};
  }

  /// True for the CPU.
  [[nodiscard]] constexpr bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  /// True for a GPU, real or simulated.
  [[nodiscard]] constexpr bool is_cuda() const noexcept { return type == DeviceType::cuda; }
  /// "cpu", "cuda" or "cuda:N".
  [[nodiscard]] std::string str() const;
  /// This device, checked, with index -1 replaced by that of the calling thread's current device.
  /// Throws: InvalidArgument if there is no such device; NotSupported if there is no platform.
  [[nodiscard]] Device resolved() const;

  /// True if `name` names this device ("cpu", "cuda:1"); false for any other text.
  [[nodiscard]] bool is_named(std::string_view name) const noexcept;

  /// True if type and index are equal. The index -1 of Device::cuda() is not resolved:
  /// `Device::cuda() == current_device()` is false. Compare resolved() devices.
  friend constexpr bool operator==(const Device& a, const Device& b) = default;
  /// Orders the CPU first, then GPUs by index. Devices can thus be keys of a map.
  friend constexpr auto operator<=>(const Device& a, const Device& b) = default;
  /// is_named(name). Unlike Device(name) it never throws, so it accepts every text of
  /// Error::device().
  template <class T>
  requires(std::same_as<T, std::string> || std::same_as<T, std::string_view>) friend bool
  operator==(const Device& device, const T& name) noexcept {
    return device.is_named(name);
  }
};

/// Writes str().
GANTRY_API std::ostream& operator<<(std::ostream& out, const Device& device);

/// The origin of the devices. It is chosen once per process, at first use.
/// @since 0.1
enum class Platform : std::uint8_t {
  none,       ///< no devices
  cuda,       ///< GPUs
  simulated,  ///< devices of GANTRY_SIM_DEVICES
};

/// The platform of this process: simulated if GANTRY_SIM_DEVICES is set, else CUDA if the driver
/// shows a GPU, else none. Initialises no device.
/// @since 0.1
[[nodiscard]] GANTRY_API Platform platform();
/// "none", "cuda" or "simulated".
/// @since 0.1
[[nodiscard]] GANTRY_API std::string_view name(Platform platform) noexcept;
/// Writes name().
GANTRY_API std::ostream& operator<<(std::ostream& out, Platform platform);
/// Number of visible devices; 0 without a platform. Creates no context. Throws: ForkError if
/// in_bad_fork().
/// @since 0.1
[[nodiscard]] GANTRY_API int device_count();
/// All visible devices by index: `for (const Device& device : devices())`. Creates no context.
/// Throws: as device_count().
/// Example: `for (const Device& device : devices()) std::cout << device_properties(device).name;`
/// @since 0.3
[[nodiscard]] GANTRY_API std::vector<Device> devices();
/// True if there is at least one device. Throws: as device_count().
/// @since 0.1
[[nodiscard]] GANTRY_API bool is_available();
/// True once init() or any device operation initialised the platform in this process.
/// @since 0.1
[[nodiscard]] GANTRY_API bool is_initialized() noexcept;
/// Initialises the platform now rather than at first use; creates no context.
/// Throws: NotSupported that names GANTRY_SIM_DEVICES if there is no platform.
/// @since 0.1
GANTRY_API void init();

/// The calling thread's current device, also if other code chose it with cudaSetDevice.
/// @since 0.1
[[nodiscard]] GANTRY_API Device current_device();
/// Makes `device` the calling thread's current device. Throws: InvalidArgument for the CPU or a
/// device index past the end.
/// @since 0.1
GANTRY_API void set_device(Device device);
/// Blocks the host until all work submitted to `device` is complete. Throws: asynchronous errors of
/// that work.
/// Example: `synchronize("cuda:0");  // throws the errors of its work`
/// @since 0.1
GANTRY_API void synchronize(Device device = Device::cuda());

/// True in a process whose parent had used devices before the fork. Every device call then throws
/// ForkError. Counting GPUs is a use; of simulated devices it is not.
/// @since 0.1
[[nodiscard]] GANTRY_API bool in_bad_fork() noexcept;

}  // namespace gantry

template <>
struct std::hash<gantry::Device> {
  std::size_t operator()(const gantry::Device& device) const noexcept {
    return static_cast<std::size_t>(device.index) * 2 + static_cast<std::size_t>(device.type);
  }
};
