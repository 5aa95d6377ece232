#include "device/device_monitor.hpp"

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>

namespace gantry {

DeviceMonitor::DeviceMonitor(const machine::Nvml& nvml, std::string uuid, std::string device)
    : nvml_(nvml), uuid_(std::move(uuid)), device_(std::move(device)) {}

void DeviceMonitor::fail(const Subject& subject, const std::string& cause) const {
  throw NotSupported(fmt::format("{}: failed to read {} of {}: {}", subject.operation,
                                 subject.value, device_, cause),
                     device_);
}

template <class T>
T DeviceMonitor::value_of(const Subject& subject, machine::NvmlResult<T> result) const {
  if (!result) fail(subject, fmt::format("{}: {}", subject.function, result.problem));
  return *std::move(result.value);
}

machine::NvmlDevice DeviceMonitor::find(const Subject& subject) const {
  if (!nvml_.problem().empty()) {
    fail(subject, nvml_.problem() +
                      "; install the library of the NVIDIA driver, or set GANTRY_NVML_PATH to it");
  }
  const machine::NvmlResult<machine::NvmlDevice> found = nvml_.device_by_uuid(uuid_);
  if (!found) {
    fail(subject, fmt::format("nvmlDeviceGetHandleByUUID({}): {}", uuid_, found.problem));
  }
  return *found;
}

// The device, or the GPU that it is an instance of.
machine::NvmlDevice DeviceMonitor::find_gpu(const Subject& subject) const {
  const machine::NvmlDevice device = find(subject);
  if (!is_instance()) return device;
  const machine::NvmlResult<machine::NvmlDevice> gpu = nvml_.gpu_of_instance(device);
  if (!gpu) {
    fail(subject, fmt::format("nvmlDeviceGetDeviceHandleFromMigDeviceHandle: {}", gpu.problem));
  }
  return *gpu;
}

machine::NvmlUtilization DeviceMonitor::rates(const Subject& subject) const {
  const machine::NvmlDevice device = find(subject);
  if (is_instance()) {
    fail(subject, fmt::format("{} is a MIG instance, and the driver counts whole GPUs", uuid_));
  }
  return value_of(subject, nvml_.utilization(device));
}

int DeviceMonitor::utilization() const {
  const Subject subject{"utilization", "the utilization", "nvmlDeviceGetUtilizationRates"};
  return static_cast<int>(rates(subject).gpu);
}

int DeviceMonitor::memory_usage() const {
  const Subject subject{"memory_usage", "the memory usage", "nvmlDeviceGetUtilizationRates"};
  return static_cast<int>(rates(subject).memory);
}

int DeviceMonitor::temperature() const {
  const Subject subject{"temperature", "the temperature", "nvmlDeviceGetTemperature"};
  return static_cast<int>(value_of(subject, nvml_.temperature(find_gpu(subject))));
}

int DeviceMonitor::power_draw() const {
  const Subject subject{"power_draw", "the power draw", "nvmlDeviceGetPowerUsage"};
  return static_cast<int>(value_of(subject, nvml_.power(find_gpu(subject))));
}

int DeviceMonitor::clock_rate() const {
  const Subject subject{"clock_rate", "the clock rate", "nvmlDeviceGetClockInfo"};
  return static_cast<int>(
      value_of(subject, nvml_.clock(find_gpu(subject), machine::NvmlClock::sm)));
}

std::vector<GpuProcess> DeviceMonitor::processes(bool has_names) const {
  const Subject subject{"list_gpu_processes", "the processes",
                        "nvmlDeviceGetComputeRunningProcesses_v3"};
  std::vector<GpuProcess> result;
  for (const machine::NvmlProcess& process : value_of(subject, nvml_.processes(find(subject)))) {
    std::string name = has_names ? nvml_.process_name(process.pid).value_or("") : "";
    result.push_back({static_cast<int>(process.pid), std::move(name), process.used_bytes});
  }
  return result;
}

}  // namespace gantry
