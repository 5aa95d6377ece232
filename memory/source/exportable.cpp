#include "memory/source/exportable.hpp"

namespace gantry::memory {

constinit std::atomic<ExportTracker*> export_tracker{nullptr};

std::uint64_t new_extent_id() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gantry::memory
