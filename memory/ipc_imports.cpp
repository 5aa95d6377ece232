#include "memory/ipc_imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>

#include "device/peer_access.hpp"

namespace gantry::memory {
namespace {

struct Imports {
  Imports();

  using Key = std::tuple<std::int32_t, std::uint64_t, std::uint64_t, int>;

  std::mutex mutex;
  std::map<Key, std::weak_ptr<ImportedExtent>> extents;
  std::size_t tidy_at = 16;  ///< number of entries at which dead ones are removed
};

Imports& imports() {
  static auto& instance = *new Imports();
  return instance;
}

bool may_use(int device, int owner) {
  return device == owner || can_access_peer(Device::cuda(device), Device::cuda(owner));
}

// The importing device, and its peers that access its own memory too.
std::vector<int> users_of(int device, int owner) {
  std::vector<int> users = devices_with_access_to(device);
  std::erase_if(users, [=](int user) { return user == device || !may_use(user, owner); });
  users.push_back(device);
  return users;
}

Imports::Imports() {
  on_peer_access([](int from, int to) {
    std::vector<std::shared_ptr<ImportedExtent>> concerned;
    {
      Imports& all = imports();
      const std::lock_guard lock(all.mutex);
      for (const auto& [key, weak] : all.extents) {
        if (std::get<3>(key) != to) continue;
        if (auto extent = weak.lock()) concerned.push_back(std::move(extent));
      }
    }
    for (const auto& extent : concerned) extent->open_to(from);
  });
}

}  // namespace

ImportedExtent::ImportedExtent(IpcPeer& peer, const IpcMessage& message, int device, int owner)
    : device_(device), owner_(owner), bytes_(message.extent_bytes) {
  if (message.kind == IpcKind::segment) {
    is_segment_ = true;
    base_ = static_cast<std::byte*>(driver().open_memory(device, message.segment));
    return;
  }
  base_ = static_cast<std::byte*>(driver().reserve_address(bytes_, 0));
  try {
    map_chunks(peer, message);
  } catch (...) {
    unmap_chunks();
    throw;
  }
}

void ImportedExtent::map_chunks(IpcPeer& peer, const IpcMessage& message) {
  std::size_t total = 1;
  for (std::size_t next = 0; next < total;) {
    for (const IpcPeer::Chunk& chunk : peer.fetch(message.slot, message.generation, next, total)) {
      if (chunk.bytes > bytes_ - mapped_) {
        throw Error(
            fmt::format("import_ipc: chunks of {} bytes together were expected, but got "
                        "more of process {}",
                        bytes_, peer.process().pid));
      }
      const NativeChunk opened =
          driver().import_chunk(device_, chunk.descriptor.get(), chunk.bytes);
      try {
        driver().map_chunk(base_ + mapped_, chunk.bytes, opened);
      } catch (...) {
        driver().release_chunk(opened);
        throw;
      }
      mapped_ += chunk.bytes;
      // The mapping keeps it.
      driver().release_chunk(opened);
      ++next;
    }
  }
  if (mapped_ != bytes_) {
    throw Error(fmt::format(
        "import_ipc: chunks of {} bytes together were expected, but got {} bytes of process {}",
        bytes_, mapped_, peer.process().pid));
  }
  driver().set_access(base_, bytes_, users_of(device_, owner_));
}

void ImportedExtent::open_to(int device) {
  if (is_segment_ || !may_use(device, owner_)) return;
  const int user[] = {device};
  driver().set_access(base_, bytes_, user);
}

void ImportedExtent::unmap_chunks() noexcept {
  try {
    if (mapped_ > 0) driver().unmap(base_, mapped_);
    driver().free_address(base_, bytes_);
  } catch (...) {
    // The platform is shutting down; it takes the mapping with it.
  }
}

ImportedExtent::~ImportedExtent() {
  if (in_bad_fork()) return;
  if (!is_segment_) {
    unmap_chunks();
    return;
  }
  try {
    driver().close_memory(base_);
  } catch (...) {
    // As above.
  }
}

std::shared_ptr<ImportedExtent> import_extent(IpcPeer& peer, const IpcMessage& message, int device,
                                              int owner) {
  Imports& all = imports();
  const Imports::Key key{peer.process().pid, peer.process().start_time, message.extent_id, device};
  // Held while mapping, so that an extent is mapped once.
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.extents.find(key); found != all.extents.end()) {
    if (auto extent = found->second.lock()) return extent;
  }
  if (all.extents.size() >= all.tidy_at) {
    std::erase_if(all.extents, [](const auto& entry) { return entry.second.expired(); });
    all.tidy_at = 2 * all.extents.size() + 16;
  }
  auto extent = std::make_shared<ImportedExtent>(peer, message, device, owner);
  all.extents.insert_or_assign(key, extent);
  return extent;
}

std::size_t imported_bytes(int device) {
  Imports& all = imports();
  const std::lock_guard lock(all.mutex);
  std::size_t bytes = 0;
  for (const auto& [key, weak] : all.extents) {
    if (std::get<3>(key) != device) continue;
    if (const auto extent = weak.lock()) bytes += extent->bytes();
  }
  return bytes;
}

}  // namespace gantry::memory
