#include <gantry/extend/driver.hpp>
#include <gantry/memory/stats.hpp>

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string_view>

#include "core/text/byte_count.hpp"
#include "device/checked_device_index.hpp"
#include "memory/backends.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/stats/counters.hpp"

namespace gantry::memory {
namespace {

// What the allocators had counted at the last reset, by device. They go on counting from the
// start: one sum then derives from others.
struct Baseline {
  Stats stats;
  std::int64_t rejections = 0;
};

struct Baselines {
  std::mutex mutex;
  std::map<int, Baseline> by_device;
};

Baselines& baselines() {
  static auto& instance = *new Baselines();
  return instance;
}

Baseline baseline_of(int device) {
  const std::lock_guard lock(baselines().mutex);
  const auto found = baselines().by_device.find(device);
  return found == baselines().by_device.end() ? Baseline{} : found->second;
}

Stats stats_for(Device device, std::string_view op) {
  const int index = checked_device_index(device, op);
  Stats stats = standard_allocator().stats(index);
  const Stats before = baseline_of(index).stats;
  for_each_stat(stats, before, [](Stat& stat, const Stat& base) {
    stat.allocated -= base.allocated;
    stat.freed -= base.freed;
  });
  for (const NamedNumber& entry : kNumbers) {
    if (entry.accumulates) stats.*entry.member -= before.*entry.member;
  }
  return stats;
}

std::string row(std::string_view title, const Stat& stat, bool bytes) {
  const auto text = [bytes](std::int64_t value) {
    return bytes ? format_bytes(value) : fmt::format("{}", value);
  };
  return fmt::format("| {:<22} | {:>12} | {:>12} | {:>12} | {:>12} |\n", title, text(stat.current),
                     text(stat.peak), text(stat.allocated), text(stat.freed));
}

}  // namespace

Stats stats(Device device) { return stats_for(device, "stats"); }

std::map<std::string, std::int64_t> stats_map(Device device) {
  const Stats stats = stats_for(device, "stats_map");
  std::map<std::string, std::int64_t> map;
  for (const NamedPoolStat& entry : kPoolStats) {
    for (const NamedPart& part : kParts) {
      add(map, fmt::format("{}.{}", entry.name, part.name), stats.*entry.member.*part.member);
    }
  }
  add(map, "oversize_allocations", stats.oversize_allocations);
  add(map, "oversize_segments", stats.oversize_segments);
  const int index = checked_device_index(device, "stats_map");
  map["num_oom_rejections"] = limit_rejections(index) - baseline_of(index).rejections;
  map["max_split_size"] = stats.max_split_size;
  for (const NamedNumber& entry : kNumbers) map[std::string(entry.name)] = stats.*entry.member;
  return map;
}

std::string summary(Device device) {
  const int index = checked_device_index(device, "summary");
  const Stats stats = stats_for(Device::cuda(index), "summary");
  std::string text = fmt::format(
      "Memory of cuda:{}: {} out of memory, {} allocations retried\n"
      "| {:<22} | {:>12} | {:>12} | {:>12} | {:>12} |\n",
      index, stats.num_ooms, stats.num_alloc_retries, "", "now", "peak", "allocated", "freed");
  for (const NamedPoolStat& entry : kPoolStats) {
    const PoolStat& stat = stats.*entry.member;
    const bool bytes = entry.name.ends_with("_bytes");
    text += row(entry.name, stat.all, bytes);
    text += row("  small blocks", stat.small_pool, bytes);
    text += row("  large blocks", stat.large_pool, bytes);
  }
  for (const NamedNumber& entry : kNumbers) {
    if (entry.is_of_torch) continue;
    const std::int64_t value = stats.*entry.member;
    text += fmt::format("| {:<22} | {:>12} |\n", entry.name,
                        entry.is_bytes() ? format_bytes(value) : fmt::format("{}", value));
  }
  return text;
}

std::size_t allocated(Device device) {
  return static_cast<std::size_t>(stats_for(device, "allocated").allocated_bytes.all.current);
}

std::size_t max_allocated(Device device) {
  return static_cast<std::size_t>(stats_for(device, "max_allocated").allocated_bytes.all.peak);
}

std::size_t reserved(Device device) {
  return static_cast<std::size_t>(stats_for(device, "reserved").reserved_bytes.all.current);
}

std::size_t max_reserved(Device device) {
  return static_cast<std::size_t>(stats_for(device, "max_reserved").reserved_bytes.all.peak);
}

void reset_peak_stats(Device device) {
  standard_allocator().reset_peak_stats(checked_device_index(device, "reset_peak_stats"));
}

void reset_accumulated_stats(Device device) {
  const int index = checked_device_index(device, "reset_accumulated_stats");
  const Stats now = standard_allocator().stats(index);
  const std::lock_guard lock(baselines().mutex);
  baselines().by_device.insert_or_assign(index, Baseline{now, limit_rejections(index)});
}

MemInfo mem_get_info(Device device) {
  const NativeMemoryInfo info = driver().memory_info(checked_device_index(device, "mem_get_info"));
  return {.free = info.free, .total = info.total};
}

}  // namespace gantry::memory
