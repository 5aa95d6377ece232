#include "collectives/sim/accesses.hpp"

#include <atomic>

namespace gantry::protocol::accesses {

namespace {

std::atomic<Watcher*> current{nullptr};

}  // namespace

void set_watcher(Watcher* watcher) noexcept { current.store(watcher, std::memory_order_release); }

Watcher* watcher() noexcept { return current.load(std::memory_order_acquire); }

}  // namespace gantry::protocol::accesses
