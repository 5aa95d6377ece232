#include <gantry/device/properties.hpp>

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <ostream>
#include <vector>

#include <gantry/core/error.hpp>

#include "device/platform/platform.hpp"

namespace gantry {

namespace {

/// One slot a device, filled at the first question. Never destroyed, so that references stay valid
/// to the very end of the process.
class PropertiesCache {
 public:
  explicit PropertiesCache(int devices) : slots_(static_cast<std::size_t>(devices)) {}

  const DeviceProperties& get(DeviceCalls& driver, int device) {
    std::atomic<const DeviceProperties*>& slot = slots_[static_cast<std::size_t>(device)];
    if (const auto* known = slot.load(std::memory_order_acquire)) return *known;
    const std::lock_guard lock(mutex_);
    if (const auto* known = slot.load(std::memory_order_relaxed)) return *known;
    auto made = std::make_unique<const DeviceProperties>(driver.properties(device));
    slot.store(made.get(), std::memory_order_release);
    return *made.release();
  }

 private:
  std::vector<std::atomic<const DeviceProperties*>> slots_;
  std::mutex mutex_;
};

}  // namespace

const DeviceProperties& device_properties(Device device) {
  if (device.is_cpu()) {
    throw InvalidArgument("device_properties: expected a CUDA device, but got " + device.str());
  }
  const int index = device.resolved().index;
  static PropertiesCache& cache = *new PropertiesCache(device_count());
  return cache.get(driver(), index);
}

std::ostream& operator<<(std::ostream& out, const DeviceProperties& p) {
  constexpr double kMiB = 1024.0 * 1024.0;
  return out << fmt::format("{} ({}.{}), {:.0f} MiB, {} multiprocessors, {}, {}", p.name, p.major,
                            p.minor, static_cast<double>(p.total_memory) / kMiB, p.multiprocessors,
                            p.pci_bus_id, p.uuid);
}

}  // namespace gantry
