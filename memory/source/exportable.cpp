#include "memory/source/exportable.hpp"

#include <atomic>

namespace gantry::memory {
namespace {

constinit std::atomic<ExportTracker*> registered_tracker{nullptr};

}  // namespace

std::uint64_t new_extent_id() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void register_export_tracker(ExportTracker& tracker) noexcept { registered_tracker = &tracker; }

bool defer_exported_free(Block& block) noexcept {
  ExportTracker* tracker = registered_tracker;
  return tracker != nullptr && tracker->defer_free(block);
}

std::map<int, std::size_t> limbo_by_consumer(int device) {
  const ExportTracker* tracker = registered_tracker;
  return tracker != nullptr ? tracker->limbo_by_consumer(device) : std::map<int, std::size_t>();
}

}  // namespace gantry::memory
