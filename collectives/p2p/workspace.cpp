#include "collectives/p2p/workspace.hpp"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/control/block.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/peers/reach.hpp"
#include "core/process_stamp.hpp"
#include "memory/source/driver_memory.hpp"

namespace gantry {

struct Workspace::Memory {
  Memory(int device, std::byte* data, bool owned) : device(device), data(data), owned(owned) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    try {
      if (owned) {
        driver().deallocate(device, data);
      } else {
        driver().close_memory(data);
      }
    } catch (const std::exception& error) {
      logging::warn(fmt::format("releasing a communicator's workspace: {}", error.what()));
    }
  }

  int device;
  std::byte* data;
  bool owned;
};

// Bytes and fixed-width numbers only, so that there is no padding.
struct Workspace::Offer {
  NativeMemoryHandle handle;
  std::uint64_t start_time = 0;
  std::uint64_t address = 0;  // of a shared_ptr<Memory>, for ranks of the same process
  std::int32_t pid = 0;
  std::int32_t device = 0;
  char uuid[64] = {};
};

namespace {

// Whether NVLink, or nothing at all, is between this process's `device` and the one with `uuid`.
bool carries_whole_lines(int device, std::string_view uuid) {
  for (int i = 0; i < device_count(); ++i) {
    if (device_properties(Device::cuda(i)).uuid == uuid)
      return driver().has_peer_atomics(device, i);
  }
  return false;
}

}  // namespace

Workspace::Workspace(Bootstrap& bootstrap, const ControlBlock& control, int device,
                     std::size_t bytes)
    : mine_(static_cast<std::size_t>(control.rank())),
      device_(device),
      is_closed_(control.closing()),
      memory_(static_cast<std::size_t>(control.size())) {
  free_kept();
  try {
    open_all(bootstrap, device, bytes);
  } catch (...) {
    close();
    keep(std::move(memory_[mine_]), std::move(is_closed_));
    throw;
  }
  count_sharing(true);
}

Workspace::~Workspace() {
  close();
  keep(std::move(memory_[mine_]), std::move(is_closed_));
  count_sharing(false);
  free_kept();
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
}

namespace {

// What others may have open, and what tells that they have not.
template <class Memory>
struct Kept {
  std::shared_ptr<Memory> memory;
  std::function<bool()> is_closed;
};

template <class Memory>
struct KeptList {
  std::mutex mutex;
  std::list<Kept<Memory>> entries;
  int shared_workspaces = 0;

  // Never destroyed: what is still there ends with the process.
  static KeptList& instance() {
    static auto& list = *new KeptList();
    return list;
  }
};

}  // namespace

void Workspace::keep(std::shared_ptr<Memory> memory, std::function<bool()> is_closed) noexcept {
  if (memory == nullptr || (memory.use_count() == 1 && is_closed())) return;
  auto& kept = KeptList<Memory>::instance();
  try {
    const std::lock_guard lock(kept.mutex);
    kept.entries.push_back({memory, std::move(is_closed)});
  } catch (const std::bad_alloc&) {  // lost, rather than freed too soon
    (void)new (std::nothrow) std::shared_ptr<Memory>(std::move(memory));
  }
}

void Workspace::free_kept() noexcept {
  auto& kept = KeptList<Memory>::instance();
  std::list<Kept<Memory>> ready;  // outlives the lock
  const std::lock_guard lock(kept.mutex);
  for (auto entry = kept.entries.begin(); entry != kept.entries.end();) {
    const auto here = entry++;
    const bool is_mine = here->memory->device == device_ || kept.shared_workspaces == 0;
    if (is_mine && here->memory.use_count() == 1 && here->is_closed()) {
      ready.splice(ready.end(), kept.entries, here);
    }
  }
}

void Workspace::count_sharing(bool begins) noexcept {
  if (begins) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      is_shared_ = is_shared_ || (rank != mine_ && memory_[rank] && memory_[rank]->owned);
    }
  }
  if (!is_shared_) return;
  auto& kept = KeptList<Memory>::instance();
  const std::lock_guard lock(kept.mutex);
  kept.shared_workspaces += begins ? 1 : -1;
}

std::string Workspace::make_own(int device, std::size_t bytes) {
  void* data = memory::allocate_from_driver(device, bytes, "a communicator's workspace");
  memory_[mine_] = std::make_shared<Memory>(device, static_cast<std::byte*>(data), true);
  const Stream stream = Stream::from_pool(Device::cuda(device));
  driver().fill(data, 0, bytes, stream.native());
  stream.synchronize();
  Offer offer;
  offer.handle = driver().export_memory(data);
  offer.pid = this_process().pid;
  offer.start_time = this_process().start_time;
  offer.address = reinterpret_cast<std::uintptr_t>(&memory_[mine_]);
  offer.device = device;
  const std::string& uuid = device_properties(Device::cuda(device)).uuid;
  uuid.copy(offer.uuid, sizeof offer.uuid - 1);
  return {reinterpret_cast<const char*>(&offer), sizeof offer};
}

namespace {

// How a rank's word to the others begins: it has done its part, ran out of memory, or failed.
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
  std::string offer_bytes;
  bool has_whole_lines = true;
  std::exception_ptr failure;
  try {
    offer_bytes = kMade + make_own(device, bytes);
  } catch (...) {
    failure = std::current_exception();
    offer_bytes = failure_text(failure);
  }
  const std::vector<std::string> offers = bootstrap.all_gather(offer_bytes);
  if (!failure) {
    try {
      for (std::size_t peer = 0; peer < offers.size(); ++peer) {
        if (peer == mine_) continue;
        if (offers[peer].substr(0, 1) != kMade) {
          throw_failure_of(static_cast<int>(peer), "allocate its workspace", offers[peer], device);
        }
        Offer offer;
        std::memcpy(&offer, offers[peer].data() + 1, sizeof offer);
        memory_[peer] = open(offer, static_cast<int>(peer), device);
        has_whole_lines = has_whole_lines && carries_whole_lines(device, offer.uuid);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }
  // Nobody uses, or takes away, memory before everyone has opened everything.
  constexpr std::string_view kOpened = "opened";
  constexpr std::string_view kOpenedForLines = "opened, and all links carry whole lines";
  const std::string_view state = has_whole_lines ? kOpenedForLines : kOpened;
  const std::vector<std::string> states =
      bootstrap.all_gather(failure ? failure_text(failure) : kMade + std::string(state));
  for (std::size_t peer = 0; peer < states.size() && !failure; ++peer) {
    has_whole_lines_ = has_whole_lines_ && states[peer] == kMade + std::string(kOpenedForLines);
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
  give_back(bootstrap);
  std::rethrow_exception(failure);
}

std::shared_ptr<Workspace::Memory> Workspace::open(const Offer& offer, int peer, int device) const {
  const bool same_process =
      offer.pid == this_process().pid && offer.start_time == this_process().start_time;
  if (!same_process) {
    void* data = nullptr;
    try {
      data = driver().open_memory(device, offer.handle);
    } catch (const CudaError&) {
      const std::string hidden = explain_unreachable(peer, offer.uuid);
      if (hidden.empty()) throw;
      throw NotSupported(hidden);
    }
    return std::make_shared<Memory>(device, static_cast<std::byte*>(data), false);
  }
  if (!reaches(Device::cuda(device), Device::cuda(offer.device))) {
    throw NotSupported(fmt::format(
        "a communicator needs peer access between its devices, but cuda:{} cannot reach cuda:{}",
        device, offer.device));
  }
  return *reinterpret_cast<const std::shared_ptr<Memory>*>(
      static_cast<std::uintptr_t>(offer.address));
}

std::byte* Workspace::of(int rank) const { return memory_[static_cast<std::size_t>(rank)]->data; }

}  // namespace gantry
