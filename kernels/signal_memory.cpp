#include "kernels/signal_memory.hpp"

#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace gantry::kernels {

namespace {

std::uintptr_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// The ranges of memory. Several windows may have one range.
struct Ranges {
  std::mutex mutex;
  std::multimap<std::uintptr_t, std::size_t> bytes;  // by address
  std::atomic<std::size_t> count{0};

  // Never destroyed: windows of static duration end late.
  static Ranges& instance() {
    static auto* const ranges = new Ranges;
    return *ranges;
  }
};

}  // namespace

SignalMemory::SignalMemory(const void* data, std::size_t bytes) : data_(data) {
  Ranges& ranges = Ranges::instance();
  const std::lock_guard lock(ranges.mutex);
  ranges.bytes.emplace(address_of(data), bytes);
  ranges.count.fetch_add(1, std::memory_order_relaxed);
}

SignalMemory::~SignalMemory() {
  Ranges& ranges = Ranges::instance();
  const std::lock_guard lock(ranges.mutex);
  ranges.bytes.erase(ranges.bytes.find(address_of(data_)));
  ranges.count.fetch_sub(1, std::memory_order_relaxed);
}

bool SignalMemory::exists() noexcept {
  return Ranges::instance().count.load(std::memory_order_relaxed) != 0;
}

bool SignalMemory::contains(const void* data) {
  if (!exists()) return false;
  Ranges& ranges = Ranges::instance();
  const std::lock_guard lock(ranges.mutex);
  // Ranges are whole blocks of memory, so two of them overlap only if they are equal.
  const auto behind = ranges.bytes.upper_bound(address_of(data));
  if (behind == ranges.bytes.begin()) return false;
  const auto& [begin, bytes] = *std::prev(behind);
  return address_of(data) - begin < bytes;
}

}  // namespace gantry::kernels
