#include "collectives/p2p/workspace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/control/locked_words.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/peers/reach.hpp"
#include "core/assert.hpp"
#include "core/processes/process_stamp.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "memory/driver_memory.hpp"
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
      memory::deallocate_to_driver(device_, data_);
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

// Bytes and fixed-width numbers only, so that there is no padding.
struct Workspace::Export {
  NativeMemoryHandle handle;
  std::uint64_t start_time = 0;
  std::uint64_t number = 0;  // of the WorkspaceMemory, for ranks of the same process
  std::int32_t pid = 0;
  std::int32_t device = 0;
  char uuid[64] = {};
};

namespace {

// False if the device with `uuid` is hidden from this process.
bool link_keeps_ll128_order(int device, std::string_view uuid) {
  for (int i = 0; i < device_count(); ++i) {
    if (device_properties(Device::cuda(i)).uuid == uuid) return keeps_line_order(device, i);
  }
  return false;
}

}  // namespace

Workspace::Workspace(Bootstrap& bootstrap, const ControlSegment& control, int device,
                     std::size_t bytes)
    : mine_(static_cast<std::size_t>(control.rank())),
      device_(device),
      is_closed_(control.closing()),
      memory_(static_cast<std::size_t>(control.size())) {
  try {
    open_all(bootstrap, device, bytes);
  } catch (...) {
    close();
    KeptWorkspaces::instance().free_or_keep(std::move(memory_[mine_]), std::move(is_closed_));
    throw;
  }
  is_shared_ = has_neighbours();
  if (is_shared_) KeptWorkspaces::instance().begin_sharing();
}

Workspace::~Workspace() {
  close();
  KeptWorkspaces& kept = KeptWorkspaces::instance();
  kept.free_or_keep(std::move(memory_[mine_]), std::move(is_closed_));
  if (is_shared_) kept.end_sharing();
}

void Workspace::close() noexcept {
  for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
    if (rank != mine_) memory_[rank].reset();
  }
}

void Workspace::give_back(Bootstrap& bootstrap) {
  close();
  (void)bootstrap.all_gather("closed");
  memory_[mine_].reset();
  // A rank that went on could start a kernel, for which the free of another would wait.
  (void)bootstrap.all_gather("freed");
}

bool Workspace::has_neighbours() const {
  for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
    if (rank != mine_ && memory_[rank] && memory_[rank]->is_own()) return true;
  }
  return false;
}

std::string Workspace::make_own(int device, std::size_t bytes) {
  memory_[mine_] = KeptWorkspaces::instance().take(device, bytes);
  if (memory_[mine_] == nullptr) {
    void* data = memory::allocate_from_driver(device, bytes, "a communicator's workspace");
    memory_[mine_] = WorkspaceMemory::own(device, static_cast<std::byte*>(data), bytes);
  }
  void* const data = memory_[mine_]->data();
  const Stream stream = Stream::from_pool(Device::cuda(device));
  driver().fill(data, 0, bytes, stream.native());
  const BlockingIsNeeded needed;
  stream.synchronize();
  Export exported;
  exported.handle = driver().export_memory(data);
  exported.pid = this_process().pid;
  exported.start_time = this_process().start_time;
  exported.number = memory_[mine_]->number();
  exported.device = device;
  const std::string& uuid = device_properties(Device::cuda(device)).uuid;
  uuid.copy(exported.uuid, sizeof exported.uuid - 1);
  return {reinterpret_cast<const char*>(&exported), sizeof exported};
}

namespace {

// The first character of a rank's message to the others: success, out of memory, or failure.
constexpr const char* kMade = "+";
constexpr const char* kOutOfMemory = "m";
constexpr const char* kFailed = "-";

std::string failure_text(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const OutOfMemoryError& error) {
    return kOutOfMemory + std::string(error.what());
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  } catch (...) {
    return kFailed;
  }
}

// A rank that fails is alive, and every rank fails with it.
[[noreturn]] void throw_failure_of(int rank, std::string_view what, const std::string& word,
                                   int device) {
  const std::string text =
      fmt::format("rank {} failed to {}: {}", rank, what, word.empty() ? word : word.substr(1));
  if (word.substr(0, 1) == kOutOfMemory) {
    throw OutOfMemoryError(text, {}, Device::cuda(device).str());
  }
  throw Error(text);
}

}  // namespace

void Workspace::open_all(Bootstrap& bootstrap, int device, std::size_t bytes) {
  // A failure on one rank must reach the others: they wait in the exchange.
  std::string export_bytes;
  bool keeps_ll128_order = true;
  std::exception_ptr failure;
  try {
    export_bytes = kMade + make_own(device, bytes);
  } catch (...) {
    failure = std::current_exception();
    export_bytes = failure_text(failure);
  }
  const std::vector<std::string> exports = bootstrap.all_gather(export_bytes);
  if (!failure) {
    try {
      for (std::size_t peer = 0; peer < exports.size(); ++peer) {
        if (peer == mine_) continue;
        if (exports[peer].substr(0, 1) != kMade) {
          throw_failure_of(static_cast<int>(peer), "allocate its workspace", exports[peer], device);
        }
        Export exported;
        std::memcpy(&exported, exports[peer].data() + 1, sizeof exported);
        memory_[peer] = open(exported, static_cast<int>(peer), device);
        keeps_ll128_order = keeps_ll128_order && link_keeps_ll128_order(device, exported.uuid);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }
  // No rank uses or frees memory before all ranks have opened everything.
  constexpr std::string_view kOpened = "opened";
  constexpr std::string_view kOpenedForLl128 = "opened, and all links carry whole lines";
  const std::string_view state = keeps_ll128_order ? kOpenedForLl128 : kOpened;
  const std::vector<std::string> states =
      bootstrap.all_gather(failure ? failure_text(failure) : kMade + std::string(state));
  for (std::size_t peer = 0; peer < states.size() && !failure; ++peer) {
    keeps_ll128_order_ = keeps_ll128_order_ && states[peer] == kMade + std::string(kOpenedForLl128);
    if (states[peer].substr(0, 1) == kMade) continue;
    try {
      throw_failure_of(static_cast<int>(peer), "open the workspaces of the other ranks",
                       states[peer], device);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (!failure) return;
  // All ranks have failed alike.
  close();
  (void)bootstrap.all_gather("closed");
  std::rethrow_exception(failure);
}

std::shared_ptr<WorkspaceMemory> Workspace::open(const Export& exported, int peer,
                                                 int device) const {
  const bool same_process =
      exported.pid == this_process().pid && exported.start_time == this_process().start_time;
  if (!same_process) {
    void* data = nullptr;
    try {
      data = driver().open_memory(device, exported.handle);
    } catch (const CudaError&) {
      const std::string hidden = explain_unreachable(peer, exported.uuid);
      if (hidden.empty()) throw;
      throw NotSupported(hidden);
    }
    return WorkspaceMemory::opened(device, static_cast<std::byte*>(data));
  }
  if (!reaches(Device::cuda(device), Device::cuda(exported.device))) {
    throw NotSupported(fmt::format(
        "a communicator needs peer access between its devices, but cuda:{} cannot reach cuda:{}",
        device, exported.device));
  }
  std::shared_ptr<WorkspaceMemory> memory = WorkspaceMemory::find(exported.number);
  if (memory == nullptr) {
    throw PeerLostError(
        fmt::format("rank {} gave up while the ranks opened each other's workspaces", peer), peer);
  }
  return memory;
}

std::byte* Workspace::of(int rank) const {
  GANTRY_ASSERT(static_cast<std::size_t>(rank) < memory_.size() &&
                    memory_[static_cast<std::size_t>(rank)] != nullptr,
                "the workspace of a rank is not open");
  return memory_[static_cast<std::size_t>(rank)]->data();
}

}  // namespace gantry
