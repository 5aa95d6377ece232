#include "kernels/trace/memory_counters.hpp"

#include <map>
#include <mutex>
#include <utility>

#include <gantry/memory/stats.hpp>

#include "core/trace_log.hpp"

namespace gantry::kernels {
namespace {

struct Last {
  std::mutex mutex;
  std::map<int, std::pair<std::size_t, std::size_t>> by_device;
};

Last& last() {
  static auto& instance = *new Last();
  return instance;
}

}  // namespace

void record_memory_counters(Device device) {
  if (device.is_cpu()) return;
  const memory::Stats stats = memory::stats(device);
  const std::pair now(static_cast<std::size_t>(stats.allocated_bytes.all.current),
                      static_cast<std::size_t>(stats.reserved_bytes.all.current));
  {
    Last& known = last();
    const std::lock_guard lock(known.mutex);
    const auto [place, is_new] = known.by_device.try_emplace(device.index, now);
    if (!is_new && place->second == now) return;
    place->second = now;
  }
  trace::TraceEvent event{.name = "memory",
                          .category = "memory",
                          .track = {.device = device.index},
                          .begin_ns = trace::now_ns(),
                          .is_counter = true};
  event.arguments = {{"allocated", now.first}, {"reserved", now.second}};
  trace::TraceLog::instance().add(std::move(event));
}

void forget_memory_counters() {
  Last& known = last();
  const std::lock_guard lock(known.mutex);
  known.by_device.clear();
}

}  // namespace gantry::kernels
