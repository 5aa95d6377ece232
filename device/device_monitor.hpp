// The load of one device, for people who must learn why it is unknown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gantry/device/monitor.hpp>

#include "machine/nvml/nvml.hpp"

namespace gantry {

/// Reads one device of NVML, which is found by its UUID.
///
/// Units and exceptions are as in <gantry/device/monitor.hpp>.
/// Thread safety: any thread.
class DeviceMonitor {
 public:
  /// `device` names it in errors: "cuda:0". `nvml` must outlive this object.
  DeviceMonitor(const machine::Nvml& nvml, std::string uuid, std::string device);

  [[nodiscard]] int utilization() const;
  [[nodiscard]] int memory_usage() const;
  [[nodiscard]] int temperature() const;
  [[nodiscard]] int power_draw() const;
  [[nodiscard]] int clock_rate() const;
  /// With the names of processes if `has_names`.
  [[nodiscard]] std::vector<GpuProcess> processes(bool has_names) const;

 private:
  /// What is read, for errors.
  struct Subject {
    std::string_view operation;  ///< "power_draw"
    std::string_view value;      ///< "the power draw"
    std::string_view function;   ///< NVML's, "nvmlDeviceGetPowerUsage"
  };

  [[nodiscard]] bool is_instance() const { return uuid_.starts_with("MIG-"); }
  [[nodiscard]] machine::NvmlDevice find(const Subject& subject) const;
  [[nodiscard]] machine::NvmlDevice find_gpu(const Subject& subject) const;
  [[nodiscard]] machine::NvmlUtilization rates(const Subject& subject) const;
  template <class T>
  [[nodiscard]] T value_of(const Subject& subject, machine::NvmlResult<T> result) const;
  [[noreturn]] void fail(const Subject& subject, const std::string& cause) const;

  const machine::Nvml& nvml_;
  std::string uuid_;
  std::string device_;
};

}  // namespace gantry
