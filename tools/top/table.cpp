#include "tools/top/table.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <ctime>

#include "job/group_report.hpp"
#include "tools/top/columns.hpp"

namespace gantry::top {
namespace {

constexpr std::size_t kUuidCharacters = 12;  // "GPU-5c1f3a2b"

template <class T>
std::string with_unit(const std::optional<T>& value, const char* unit) {
  return value ? fmt::format("{}{}", *value, unit) : std::string();
}

std::string memory_text(const DeviceState& device) {
  if (!device.used_bytes) return {};
  const std::string used = size_text(*device.used_bytes);
  return device.total_bytes ? fmt::format("{}/{}", used, size_text(*device.total_bytes)) : used;
}

std::string processes_text(const DeviceState& device) {
  if (!device.processes) return {};
  if (device.processes->empty()) return "none";
  std::string text;
  for (const DeviceProcess& process : *device.processes) {
    if (!text.empty()) text += ", ";
    text += std::to_string(process.pid);
    if (!process.name.empty()) text += " " + process.name;
    if (process.used_bytes) text += " " + size_text(*process.used_bytes);
  }
  return text;
}

std::string device_text(const RankState& rank) {
  return rank.device_index ? *rank.device_index : rank.uuid.substr(0, kUuidCharacters);
}

template <class T>
std::string bytes_text(const std::optional<T>& bytes) {
  return bytes ? size_text(static_cast<std::uint64_t>(*bytes)) : std::string();
}

std::string call_text(const RankState& rank) {
  if (!rank.call) return {};
  const CallState& call = *rank.call;
  return fmt::format("{} #{} {}{} by {}", call.is_under_way ? "in" : "last", call.number, call.text,
                     call.group == "world" ? "" : " of " + call.group, call.algorithm);
}

std::string summary(const Sample& sample) {
  const auto plural = [](std::size_t count, const char* noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
  };
  const std::time_t seconds = sample.time_ns / 1'000'000'000;
  return fmt::format("gantry-top on {} at {:%H:%M:%S}: {}, {}", sample.host,
                     fmt::localtime(seconds), plural(sample.devices.size(), "device"),
                     plural(sample.jobs.size(), "job"));
}

std::vector<std::string> device_lines(const std::vector<DeviceState>& devices) {
  Columns columns(
      {">GPU", "NAME", "UUID", ">UTIL", ">MEMORY", ">TEMP", ">POWER", ">CLOCK", "PROCESSES"});
  for (const DeviceState& device : devices) {
    const auto watts =
        device.power ? std::optional<unsigned>((*device.power + 500) / 1000) : std::nullopt;
    columns.add({device.index, device.name, device.uuid.substr(0, kUuidCharacters),
                 with_unit(device.utilization, "%"), memory_text(device),
                 with_unit(device.temperature, "C"), with_unit(watts, "W"),
                 with_unit(device.clock, "MHz"), processes_text(device)});
  }
  return columns.lines();
}

std::vector<std::string> rank_lines(const JobState& job) {
  Columns columns({">RANK", ">PID", ">GPU", "STATE", ">ALLOC", ">RESERVED", ">SINCE", "CALL"});
  for (const RankState& rank : job.ranks) {
    const std::string age = rank.call ? flight::duration_text(rank.call->age_ns) : "";
    columns.add({std::to_string(rank.rank), std::to_string(rank.pid), device_text(rank), rank.state,
                 bytes_text(rank.allocated_bytes), bytes_text(rank.reserved_bytes), age,
                 call_text(rank)});
  }
  return columns.lines();
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<char, 4> kUnits{'K', 'M', 'G', 'T'};
  if (bytes < 1024) return fmt::format("{}B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (value /= 1024; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return value < 99.95 ? fmt::format("{:.1f}{}", value, kUnits[unit])
                       : fmt::format("{:.0f}{}", value, kUnits[unit]);
}

std::vector<std::string> table_lines(const Sample& sample) {
  std::vector<std::string> lines{summary(sample)};
  const auto append = [&](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  if (!sample.devices.empty()) {
    lines.emplace_back();
    append(device_lines(sample.devices));
  }
  for (const JobState& job : sample.jobs) {
    lines.emplace_back();
    lines.push_back(fmt::format("job {}: {} rank(s), begun {} ago",
                                job.job.empty() ? "without a name" : job.job, job.ranks.size(),
                                flight::duration_text(sample.time_ns - job.created_ns)));
    append(rank_lines(job));
  }
  if (!sample.notes.empty()) lines.emplace_back();
  append(sample.notes);
  return lines;
}

}  // namespace gantry::top
