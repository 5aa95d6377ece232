#include "collectives/p2p/workspace_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/locked_words.hpp"
#include "memory/oom/memory_pressure.hpp"

namespace gantry {

namespace {

// The process's own memory by number. A rank hands its number to the other ranks of the process,
// and may be gone when they look.
struct OwnMemory {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<WorkspaceMemory>> by_number;
  std::uint64_t last_number = 0;

  static OwnMemory& instance() {
    static auto* const own = new OwnMemory;  // memory may be freed at the end of the process
    return *own;
  }
};

}  // namespace

std::shared_ptr<WorkspaceMemory> WorkspaceMemory::own(int device, std::byte* data,
                                                      std::size_t bytes) {
  const std::shared_ptr<WorkspaceMemory> memory(new WorkspaceMemory(device, data, bytes, true));
  OwnMemory& own = OwnMemory::instance();
  const std::lock_guard lock(own.mutex);
  own.by_number.emplace(own.last_number + 1, memory);
  memory->number_ = ++own.last_number;
  return memory;
}

std::shared_ptr<WorkspaceMemory> WorkspaceMemory::find(std::uint64_t number) {
  OwnMemory& own = OwnMemory::instance();
  const std::lock_guard lock(own.mutex);
  const auto found = own.by_number.find(number);
  return found == own.by_number.end() ? nullptr : found->second.lock();
}

std::shared_ptr<WorkspaceMemory> WorkspaceMemory::opened(int device, std::byte* data) {
  return std::shared_ptr<WorkspaceMemory>(new WorkspaceMemory(device, data, 0, false));
}

WorkspaceMemory::~WorkspaceMemory() {
  if (number_ != 0) {
    OwnMemory& own = OwnMemory::instance();
    const std::lock_guard lock(own.mutex);
    own.by_number.erase(number_);
  }
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
  const int device = memory->device();
  kept_.keep({std::move(memory), std::move(is_closed)});
  if (!LockedWords::instance().has_several_ranks()) (void)free_closed(device);
}

std::shared_ptr<WorkspaceMemory> KeptWorkspaces::take(int device, std::size_t bytes) {
  const auto fits = [&](const Kept& kept) {
    return kept.memory->device() == device && kept.memory->bytes() == bytes && kept.is_unused();
  };
  auto taken = kept_.take([&](auto begin, auto end) { return std::find_if(begin, end, fits); });
  return taken ? std::move(taken->memory) : nullptr;
}

bool KeptWorkspaces::free_closed(int device) noexcept {
  return kept_.free(
      [&](const Kept& kept) { return kept.memory->device() == device && kept.is_unused(); });
}

}  // namespace gantry
