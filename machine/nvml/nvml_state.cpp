// Values that change while a device works: memory, load, clocks, processes, health.
#include <algorithm>
#include <array>
#include <utility>

#include "machine/nvml/nvml_functions.hpp"

namespace gantry::machine {
namespace {

constexpr int kTemperatureOfGpu = 0;

}  // namespace

NvmlResult<NvmlMemory> Nvml::memory(NvmlDevice device) const {
  const auto info = ask<NvmlMemoryInfo>(functions_->memory, device);
  if (!info) return {std::nullopt, info.problem};
  return {NvmlMemory{info->total, info->free, info->used}, {}};
}

NvmlResult<NvmlUtilization> Nvml::utilization(NvmlDevice device) const {
  const auto rates = ask<NvmlUtilizationRates>(functions_->utilization, device);
  if (!rates) return {std::nullopt, rates.problem};
  return {NvmlUtilization{rates->gpu, rates->memory}, {}};
}

NvmlResult<unsigned> Nvml::temperature(NvmlDevice device) const {
  return ask<unsigned>(functions_->temperature, device, kTemperatureOfGpu);
}

NvmlResult<unsigned> Nvml::power(NvmlDevice device) const {
  return ask<unsigned>(functions_->power, device);
}

NvmlResult<unsigned> Nvml::power_limit(NvmlDevice device) const {
  return ask<unsigned>(functions_->power_limit, device);
}

NvmlResult<unsigned> Nvml::clock(NvmlDevice device, NvmlClock which) const {
  return ask<unsigned>(functions_->clock, device, static_cast<int>(which));
}

NvmlResult<unsigned> Nvml::max_clock(NvmlDevice device, NvmlClock which) const {
  return ask<unsigned>(functions_->max_clock, device, static_cast<int>(which));
}

NvmlResult<std::uint64_t> Nvml::throttle_reasons(NvmlDevice device) const {
  const auto reasons = ask<unsigned long long>(functions_->throttle_reasons, device);
  if (!reasons) return {std::nullopt, reasons.problem};
  return {std::uint64_t{*reasons}, {}};
}

NvmlResult<std::vector<NvmlProcess>> Nvml::processes(NvmlDevice device) const {
  using Result = std::vector<NvmlProcess>;
  if (!is_initialised_ || functions_->processes == nullptr) {
    return failure<Result>(kNvmlFunctionNotFound);
  }
  constexpr unsigned long long kNotAvailable = ~0ULL;
  constexpr unsigned kMostProcesses = 1U << 16U;
  std::vector<NvmlProcessInfo> infos(16);
  for (;;) {
    auto count = static_cast<unsigned>(infos.size());
    const int code = functions_->processes(device, &count, infos.data());
    if (code == kNvmlInsufficientSize && infos.size() < kMostProcesses) {
      infos.resize(2 * std::max<std::size_t>(infos.size(), count));
      continue;
    }
    if (code != kNvmlSuccess) return failure<Result>(code);
    infos.resize(count);
    break;
  }
  Result processes;
  for (const NvmlProcessInfo& info : infos) {
    NvmlProcess process{info.pid, std::nullopt};
    if (info.used_bytes != kNotAvailable) process.used_bytes = info.used_bytes;
    processes.push_back(process);
  }
  return {std::move(processes), {}};
}

NvmlResult<std::string> Nvml::process_name(unsigned pid) const {
  constexpr unsigned kNameBytes = 512;
  if (!is_initialised_ || functions_->process_name == nullptr) {
    return failure<std::string>(kNvmlFunctionNotFound);
  }
  std::array<char, kNameBytes> buffer{};
  if (const int code = functions_->process_name(pid, buffer.data(), kNameBytes);
      code != kNvmlSuccess) {
    return failure<std::string>(code);
  }
  buffer.back() = '\0';
  return {buffer.data(), {}};
}

NvmlResult<NvmlComputeMode> Nvml::compute_mode(NvmlDevice device) const {
  const auto mode = ask<unsigned>(functions_->compute_mode, device);
  if (!mode) return {std::nullopt, mode.problem};
  return {static_cast<NvmlComputeMode>(*mode), {}};
}

NvmlResult<bool> Nvml::persistence(NvmlDevice device) const {
  const auto mode = ask<unsigned>(functions_->persistence, device);
  if (!mode) return {std::nullopt, mode.problem};
  return {*mode == 1, {}};
}

NvmlResult<bool> Nvml::has_pending_retirement(NvmlDevice device) const {
  const auto pending = ask<unsigned>(functions_->retired_pending, device);
  if (!pending) return {std::nullopt, pending.problem};
  return {*pending == 1, {}};
}

NvmlResult<NvmlRemappedRows> Nvml::remapped_rows(NvmlDevice device) const {
  if (!is_initialised_ || functions_->remapped_rows == nullptr) {
    return failure<NvmlRemappedRows>(kNvmlFunctionNotFound);
  }
  NvmlRemappedRows rows;
  unsigned pending = 0;
  unsigned failed = 0;
  const int code =
      functions_->remapped_rows(device, &rows.correctable, &rows.uncorrectable, &pending, &failed);
  if (code != kNvmlSuccess) return failure<NvmlRemappedRows>(code);
  rows.is_pending = pending != 0;
  rows.has_failed = failed != 0;
  return {rows, {}};
}

}  // namespace gantry::machine
