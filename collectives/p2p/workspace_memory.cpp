#include "collectives/p2p/workspace_memory.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>

#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/locked_words.hpp"
#include "memory/heap/memory_pressure.hpp"

namespace gantry {

std::shared_ptr<WorkspaceMemory> WorkspaceMemory::own(int device, std::byte* data,
                                                      std::size_t bytes) {
  return std::shared_ptr<WorkspaceMemory>(new WorkspaceMemory(device, data, bytes, true));
}

std::shared_ptr<WorkspaceMemory> WorkspaceMemory::opened(int device, std::byte* data) {
  return std::shared_ptr<WorkspaceMemory>(new WorkspaceMemory(device, data, 0, false));
}

WorkspaceMemory::~WorkspaceMemory() {
  try {
    if (is_own_) {
      driver().deallocate(device_, data_);
    } else {
      driver().close_memory(data_);
    }
  } catch (const std::exception& error) {
    logging::warn(fmt::format("releasing a communicator's workspace: {}", error.what()));
  }
}

KeptWorkspaces::KeptWorkspaces() {
  memory::MemoryPressureCallbacks::instance().add([](int device, memory::Waiting waiting) noexcept {
    return waiting == memory::Waiting::allowed && instance().free_closed(device);
  });
}

KeptWorkspaces& KeptWorkspaces::instance() {
  static auto& kept = *new KeptWorkspaces();
  return kept;
}

void KeptWorkspaces::free_or_keep(std::shared_ptr<WorkspaceMemory> memory,
                                  std::function<bool()> is_closed) noexcept {
  if (memory == nullptr) return;
  try {
    const std::lock_guard lock(mutex_);
    kept_.push_back({memory, std::move(is_closed)});
  } catch (const std::bad_alloc&) {  // lost, rather than freed too soon
    (void)new (std::nothrow) std::shared_ptr<WorkspaceMemory>(std::move(memory));
    return;
  }
  const int device = memory->device();
  memory.reset();
  if (!LockedWords::instance().has_several_ranks()) (void)free_closed(device);
}

std::shared_ptr<WorkspaceMemory> KeptWorkspaces::take(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const WorkspaceMemory& memory = *kept->memory;
    if (memory.device() != device || memory.bytes() != bytes || !kept->is_unused()) continue;
    auto taken = std::move(kept->memory);
    kept_.erase(kept);
    return taken;
  }
  return nullptr;
}

bool KeptWorkspaces::free_closed(int device) noexcept {
  std::list<Kept> ready;  // outlives the lock
  const std::lock_guard lock(mutex_);
  if (shared_ > 0) return false;
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto here = kept++;
    if (here->memory->device() == device && here->is_unused()) {
      ready.splice(ready.end(), kept_, here);
    }
  }
  return !ready.empty();
}

void KeptWorkspaces::begin_sharing() noexcept {
  const std::lock_guard lock(mutex_);
  ++shared_;
}

void KeptWorkspaces::end_sharing() noexcept {
  const std::lock_guard lock(mutex_);
  --shared_;
}

}  // namespace gantry
