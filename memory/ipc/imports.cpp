#include "memory/ipc/imports.hpp"

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

  // Exporters may take their time; who wants other extents does not wait for them.
  struct Entry {
    std::mutex mapping;                    ///< so that an extent is mapped once
    std::weak_ptr<ImportedExtent> extent;  ///< guarded by the mutex of all
  };

  std::mutex mutex;
  std::map<Key, std::shared_ptr<Entry>> extents;
  std::size_t tidy_at = 16;  ///< number of entries at which dead ones are removed

  /// The entry of `key`, made if there is none.
  [[nodiscard]] std::shared_ptr<Entry> entry(const Key& key);
  /// The extents that are mapped for `device` now.
  [[nodiscard]] std::vector<std::shared_ptr<ImportedExtent>> in_use(int device);
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
  on_peer_access([](int, int to) {
    for (const auto& extent : imports().in_use(to)) extent->open_to_peers();
  });
}

std::shared_ptr<Imports::Entry> Imports::entry(const Key& key) {
  const std::lock_guard lock(mutex);
  if (extents.size() >= tidy_at) {
    // In use by nobody but this map, and nobody can begin meanwhile.
    std::erase_if(extents, [](const auto& known) {
      return known.second.use_count() == 1 && known.second->extent.expired();
    });
    tidy_at = 2 * extents.size() + 16;
  }
  std::shared_ptr<Entry>& place = extents[key];
  if (place == nullptr) place = std::make_shared<Entry>();
  return place;
}

std::vector<std::shared_ptr<ImportedExtent>> Imports::in_use(int device) {
  std::vector<std::shared_ptr<ImportedExtent>> found;
  const std::lock_guard lock(mutex);
  for (const auto& [key, entry] : extents) {
    if (std::get<3>(key) != device) continue;
    if (auto extent = entry->extent.lock()) found.push_back(std::move(extent));
  }
  return found;
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
  users_ = users_of(device_, owner_);
  driver().set_access(base_, bytes_, users_);
}

void ImportedExtent::open_to_peers() {
  if (is_segment_) return;
  const std::lock_guard lock(opening_);
  std::vector<int> users = users_of(device_, owner_);
  std::vector<int> fresh = users;
  std::erase_if(fresh, [&](int user) { return std::ranges::find(users_, user) != users_.end(); });
  if (fresh.empty()) return;
  driver().set_access(base_, bytes_, fresh);
  users_ = std::move(users);
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
  const std::shared_ptr<Imports::Entry> entry = all.entry(key);
  const std::lock_guard mapping(entry->mapping);
  {
    const std::lock_guard lock(all.mutex);
    if (auto extent = entry->extent.lock()) return extent;
  }
  auto extent = std::make_shared<ImportedExtent>(peer, message, device, owner);
  {
    const std::lock_guard lock(all.mutex);
    entry->extent = extent;
  }
  extent->open_to_peers();  // who got access while nobody could find it
  return extent;
}

std::size_t imported_bytes(int device) {
  std::size_t bytes = 0;
  for (const auto& extent : imports().in_use(device)) bytes += extent->bytes();
  return bytes;
}

}  // namespace gantry::memory
