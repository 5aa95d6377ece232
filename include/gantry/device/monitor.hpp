#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

// The functions of this header read NVIDIA's management library (NVML), which the first call loads.
// GANTRY_NVML_PATH names another file than libnvidia-ml.so.1. NVML finds a device by its UUID, so
// CUDA_VISIBLE_DEVICES and MIG are respected. No call creates a context.

namespace gantry {

/// A process with a context on a GPU.
/// @since 0.3
struct GpuProcess {
  /// Process id on the host, which differs from the one in a container.
  int pid = 0;
  /// Name of the program; empty in containers, and where the driver does not report it.
  std::string name;
  /// Device memory in bytes; none where the driver does not report it.
  std::optional<std::uint64_t> used_bytes;

  /// Equal if all members are.
  friend bool operator==(const GpuProcess&, const GpuProcess&) = default;
};

/// The processes with a context on one GPU.
/// @since 0.3
struct GANTRY_API GpuProcessList {
  /// The GPU.
  Device device;
  /// Its processes, in the driver's order.
  std::vector<GpuProcess> processes;

  /// One line for the device and one for each process, such as "process 4711 (train) uses 512.0 MiB
  /// GPU memory".
  [[nodiscard]] std::string str() const;
};

/// Writes str().
GANTRY_API std::ostream& operator<<(std::ostream& out, const GpuProcessList& list);

/// Percentage of time in which a kernel ran, over the driver's last sample period of at most a
/// second.
/// Thread safety: any thread. Throws: InvalidArgument if there is no such GPU; NotSupported with
/// the reason on simulated devices, on MIG instances, without NVML, or if the driver does not
/// report it.
/// @since 0.3
[[nodiscard]] GANTRY_API int utilization(Device device = Device::cuda());
/// Percentage of time in which device memory was read or written, over the driver's last sample
/// period.
/// Thread safety: any thread. Throws: as utilization().
/// @since 0.3
[[nodiscard]] GANTRY_API int memory_usage(Device device = Device::cuda());
/// Temperature in degrees Celsius; that of the whole GPU for a MIG instance.
/// Thread safety: any thread. Throws: as utilization(), but MIG instances are supported.
/// @since 0.3
[[nodiscard]] GANTRY_API int temperature(Device device = Device::cuda());
/// Power in milliwatts; that of the whole GPU for a MIG instance.
/// Thread safety: any thread. Throws: as temperature().
/// @since 0.3
[[nodiscard]] GANTRY_API int power_draw(Device device = Device::cuda());
/// Clock of the streaming multiprocessors in MHz; that of the whole GPU for a MIG instance.
/// Thread safety: any thread. Throws: as temperature().
/// @since 0.3
[[nodiscard]] GANTRY_API int clock_rate(Device device = Device::cuda());
/// Processes of every user with a context on the GPU or MIG instance.
/// Thread safety: any thread. Throws: as temperature().
/// @since 0.3
[[nodiscard]] GANTRY_API GpuProcessList list_gpu_processes(Device device = Device::cuda());

}  // namespace gantry
