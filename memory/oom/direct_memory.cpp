#include "memory/oom/direct_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

#include "core/rounding.hpp"

namespace gantry::memory {
namespace {

struct Direct {
  int device;
  std::size_t bytes;
  std::string purpose;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Direct> all;
};

// Never destroyed: memory goes back to the driver while the process exits.
Registry& registry() {
  static auto& instance = *new Registry();
  return instance;
}

}  // namespace

void note_direct_memory(int device, const void* data, std::size_t bytes,
                        std::string_view purpose) noexcept {
  try {
    const std::lock_guard lock(registry().mutex);
    registry().all.insert_or_assign(data, Direct{device, bytes, std::string(purpose)});
  } catch (const std::bad_alloc&) {  // a report lacks it
  }
}

void forget_direct_memory(const void* data) noexcept {
  const std::lock_guard lock(registry().mutex);
  registry().all.erase(data);
}

std::vector<std::pair<std::string, std::int64_t>> direct_memory(int device) {
  std::map<std::string, std::int64_t> by_purpose;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [data, direct] : registry().all) {
      if (direct.device == device) by_purpose[direct.purpose] += signed_bytes(direct.bytes);
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> result(by_purpose.begin(), by_purpose.end());
  std::ranges::stable_sort(result,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

}  // namespace gantry::memory
