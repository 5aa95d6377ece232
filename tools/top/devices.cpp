// Devices, from NVML and from the ranks that use them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/text/escaped_text.hpp"
#include "machine/sim_identity.hpp"
#include "tools/top/sample.hpp"

namespace gantry::top {
namespace {

constexpr int kMostSimulated = 64;

std::string text_of(const machine::NvmlResult<std::string>& result) {
  return result ? escape_control_characters(*result) : std::string();
}

std::optional<std::vector<DeviceProcess>> read_processes(const machine::Nvml& nvml,
                                                         machine::NvmlDevice device,
                                                         bool has_names) {
  const auto found = nvml.processes(device);
  if (!found) return std::nullopt;
  std::vector<DeviceProcess> processes;
  for (const machine::NvmlProcess& process : *found) {
    std::string name = has_names ? text_of(nvml.process_name(process.pid)) : "";
    name.erase(0, name.rfind('/') + 1);
    processes.push_back({process.pid, std::move(name), process.used_bytes});
  }
  return processes;
}

// `device` is `gpu` or an instance of it.
DeviceState read_device(const machine::Nvml& nvml, machine::NvmlDevice gpu,
                        machine::NvmlDevice device, std::string index, bool has_names) {
  DeviceState state;
  state.index = std::move(index);
  state.name = text_of(nvml.name(device));
  state.uuid = text_of(nvml.uuid(device));
  if (const auto rates = nvml.utilization(device)) {
    state.utilization = rates->gpu;
    state.memory_usage = rates->memory;
  }
  if (const auto memory = nvml.memory(device)) {
    state.used_bytes = memory->used;
    state.total_bytes = memory->total;
  }
  state.temperature = nvml.temperature(gpu).value;
  state.power = nvml.power(gpu).value;
  state.clock = nvml.clock(gpu, machine::NvmlClock::sm).value;
  state.processes = read_processes(nvml, device, has_names);
  return state;
}

// The position of a simulated device among the devices of its machine.
std::optional<int> simulated_index(const std::string& uuid) {
  for (int i = 0; i < kMostSimulated; ++i) {
    if (sim_uuid(i) == uuid) return i;
  }
  return std::nullopt;
}

DeviceState device_of_rank(const RankState& rank) {
  DeviceState device;
  device.name = rank.device_name;
  device.uuid = rank.uuid;
  if (const auto index = simulated_index(rank.uuid)) {
    device.is_simulated = true;
    device.index = std::to_string(*index);
  }
  return device;
}

}  // namespace

std::vector<DeviceState> read_devices(const machine::Nvml& nvml, bool has_names,
                                      std::vector<std::string>& notes) {
  std::vector<DeviceState> devices;
  const machine::NvmlResult<int> count = nvml.device_count();
  if (!count) {
    notes.push_back(fmt::format("no GPU is shown: {}", escape_control_characters(count.problem)));
  }
  for (int i = 0; i < count.value_or(0); ++i) {
    const machine::NvmlResult<machine::NvmlDevice> gpu = nvml.device(i);
    if (!gpu) {
      notes.push_back(
          fmt::format("GPU {} is not shown: {}", i, escape_control_characters(gpu.problem)));
      continue;
    }
    if (!nvml.is_divided(*gpu).value_or(false)) {
      devices.push_back(read_device(nvml, *gpu, *gpu, std::to_string(i), has_names));
      continue;
    }
    int number = 0;
    for (const machine::NvmlDevice instance : nvml.mig_instances(*gpu).value_or({})) {
      devices.push_back(
          read_device(nvml, *gpu, instance, fmt::format("{}/{}", i, number++), has_names));
    }
  }
  return devices;
}

void join_ranks_to_devices(Sample& sample) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < sample.devices.size(); ++i) places[sample.devices[i].uuid] = i;
  const std::size_t known = sample.devices.size();
  for (JobState& job : sample.jobs) {
    for (RankState& rank : job.ranks) {
      if (rank.uuid.empty() || !rank.is_alive) continue;
      const auto [place, is_new] = places.try_emplace(rank.uuid, sample.devices.size());
      if (is_new) sample.devices.push_back(device_of_rank(rank));
      DeviceState& device = sample.devices[place->second];
      if (place->second >= known && rank.reserved_bytes) {
        device.used_bytes =
            device.used_bytes.value_or(0) + static_cast<std::uint64_t>(*rank.reserved_bytes);
      }
    }
  }
  std::sort(sample.devices.begin() + static_cast<std::ptrdiff_t>(known), sample.devices.end(),
            [](const DeviceState& a, const DeviceState& b) { return a.uuid < b.uuid; });
  std::map<std::string, std::string> indices;
  for (const DeviceState& device : sample.devices) indices[device.uuid] = device.index;
  for (JobState& job : sample.jobs) {
    for (RankState& rank : job.ranks) {
      const auto found = indices.find(rank.uuid);
      if (found != indices.end() && !found->second.empty()) rank.device_index = found->second;
    }
  }
}

}  // namespace gantry::top
