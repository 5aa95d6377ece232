#include "device/drivers/memory_reclaim.hpp"

#include <atomic>

namespace gantry {
namespace {

constinit std::atomic<MemoryReclaimer> registered{nullptr};
thread_local constinit int forbidden_scopes = 0;

}  // namespace

void set_memory_reclaimer(MemoryReclaimer reclaimer) noexcept {
  registered.store(reclaimer, std::memory_order_release);
}

bool reclaim_memory(int device) noexcept {
  const MemoryReclaimer reclaimer = registered.load(std::memory_order_acquire);
  if (reclaimer == nullptr || forbidden_scopes > 0) return false;
  const NoReclaim once;  // the release makes calls of the driver, too
  return reclaimer(device);
}

NoReclaim::NoReclaim() noexcept { ++forbidden_scopes; }
NoReclaim::~NoReclaim() { --forbidden_scopes; }

}  // namespace gantry
