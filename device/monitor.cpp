#include <gantry/device/monitor.hpp>

#include <fmt/format.h>

#include <ostream>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "core/text/escaped_text.hpp"
#include "device/device_monitor.hpp"
#include "machine/nvml/loaded_nvml.hpp"
#include "machine/process_ids.hpp"

namespace gantry {
namespace {

// `value` is what the operation reads, for errors.
DeviceMonitor monitor_of(Device device, const char* operation, const char* value) {
  if (device.is_cpu()) {
    throw InvalidArgument(
        fmt::format("{}: expected a CUDA device, but got {}", operation, device.str()));
  }
  const Device resolved = device.resolved();
  if (platform() == Platform::simulated) {
    throw NotSupported(fmt::format("{}: failed to read {} of {}: it is a simulated device; unset "
                                   "GANTRY_SIM_DEVICES to use GPUs",
                                   operation, value, resolved.str()),
                       resolved.str());
  }
  return DeviceMonitor(machine::loaded_nvml(), device_properties(resolved).uuid, resolved.str());
}

}  // namespace

int utilization(Device device) {
  return monitor_of(device, "utilization", "the utilization").utilization();
}

int memory_usage(Device device) {
  return monitor_of(device, "memory_usage", "the memory usage").memory_usage();
}

int temperature(Device device) {
  return monitor_of(device, "temperature", "the temperature").temperature();
}

int power_draw(Device device) {
  return monitor_of(device, "power_draw", "the power draw").power_draw();
}

int clock_rate(Device device) {
  return monitor_of(device, "clock_rate", "the clock rate").clock_rate();
}

GpuProcessList list_gpu_processes(Device device) {
  const DeviceMonitor monitor = monitor_of(device, "list_gpu_processes", "the processes");
  return {device.resolved(), monitor.processes(machine::has_host_process_ids())};
}

std::string GpuProcessList::str() const {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::string text = device.str() + "\n";
  if (processes.empty()) text += "no processes are running\n";
  for (const GpuProcess& process : processes) {
    const std::string name =
        process.name.empty() ? "" : fmt::format(" ({})", escape_control_characters(process.name));
    const std::string used =
        process.used_bytes
            ? fmt::format("{:.1f} MiB", static_cast<double>(*process.used_bytes) / kMiB)
            : "an unknown amount of";
    text += fmt::format("process {}{} uses {} GPU memory\n", process.pid, name, used);
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const GpuProcessList& list) {
  return out << list.str();
}

}  // namespace gantry
