#include "ipc/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>

#include "core/assert.hpp"
#include "device/peer_access.hpp"

namespace gantry::memory {
namespace {

/// The mapped extents of this process.
struct ImportTable {
  ImportTable();

  using Key = std::tuple<std::int32_t, std::uint64_t, std::uint64_t, int>;

  // Each extent has a lock of its own: a slow exporter delays only the imports of its extents.
  struct Entry {
    std::mutex mapping;                    ///< held while the extent is mapped
    std::weak_ptr<ImportedExtent> extent;  ///< guarded by the table's mutex
  };

  std::mutex mutex;
  std::map<Key, std::shared_ptr<Entry>> extents;
  std::size_t cleanup_size = 16;  ///< number of entries at which expired ones are removed

  /// Returns the entry of `key`, created if there is none.
  [[nodiscard]] std::shared_ptr<Entry> entry(const Key& key);
  /// Returns the extents that are mapped for `device`.
  [[nodiscard]] std::vector<std::shared_ptr<ImportedExtent>> in_use(int device);
};

ImportTable& import_table() {
  static auto& instance = *new ImportTable();
  return instance;
}

bool can_use(int device, int owner) {
  return device == owner || can_access_peer(Device::cuda(device), Device::cuda(owner));
}

// The importing device, and the peers that have access to its own memory.
std::vector<int> users_of(int device, int owner) {
  std::vector<int> users = devices_with_access_to(device);
  std::erase_if(users, [=](int user) { return user == device || !can_use(user, owner); });
  users.push_back(device);
  return users;
}

ImportTable::ImportTable() {
  on_peer_access([](int, int to) {
    for (const auto& extent : import_table().in_use(to)) extent->open_to_peers();
  });
}

std::shared_ptr<ImportTable::Entry> ImportTable::entry(const Key& key) {
  const std::lock_guard lock(mutex);
  if (extents.size() >= cleanup_size) {
    // Only the map refers to these entries, and the lock keeps other threads from taking one.
    std::erase_if(extents, [](const auto& known) {
      return known.second.use_count() == 1 && known.second->extent.expired();
    });
    cleanup_size = 2 * extents.size() + 16;
  }
  std::shared_ptr<Entry>& entry = extents[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return entry;
}

std::vector<std::shared_ptr<ImportedExtent>> ImportTable::in_use(int device) {
  std::vector<std::shared_ptr<ImportedExtent>> found;
  const std::lock_guard lock(mutex);
  for (const auto& [key, entry] : extents) {
    if (std::get<3>(key) != device) continue;
    if (auto extent = entry->extent.lock()) found.push_back(std::move(extent));
  }
  return found;
}

}  // namespace

ImportedExtent::ImportedExtent(IpcPeer& peer, const IpcHandleFields& fields, int device, int owner)
    : device_(device), owner_(owner), bytes_(fields.extent_bytes) {
  if (fields.kind == IpcKind::segment) {
    is_segment_ = true;
    base_ = static_cast<std::byte*>(driver().open_memory(device, fields.segment));
    return;
  }
  base_ = static_cast<std::byte*>(driver().reserve_address(bytes_, 0));
  try {
    map_chunks(peer, fields);
  } catch (...) {
    unmap_chunks();
    throw;
  }
}

void ImportedExtent::map_chunks(IpcPeer& peer, const IpcHandleFields& fields) {
  std::size_t total = 1;
  for (std::size_t next = 0; next < total;) {
    for (const IpcPeer::Chunk& chunk :
         peer.fetch_chunks(fields.slot, fields.generation, next, total)) {
      if (chunk.bytes > bytes_ - mapped_) {
        throw Error(
            fmt::format("import_ipc: expected chunks of {} bytes from process {}, but got more",
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
      // The mapping keeps the chunk.
      driver().release_chunk(opened);
      ++next;
    }
  }
  if (mapped_ != bytes_) {
    throw Error(
        fmt::format("import_ipc: expected chunks of {} bytes from process {}, but got {} bytes",
                    bytes_, peer.process().pid, mapped_));
  }
  users_ = users_of(device_, owner_);
  driver().set_access(base_, bytes_, users_);
}

void ImportedExtent::open_to_peers() {
  if (is_segment_) return;
  const std::lock_guard lock(access_mutex_);
  std::vector<int> users = users_of(device_, owner_);
  std::vector<int> added = users;
  std::erase_if(added, [&](int user) { return std::ranges::find(users_, user) != users_.end(); });
  GANTRY_ASSERT(added.size() + users_.size() == users.size(),
                "a device that may use an extent is no peer any more");
  if (added.empty()) return;
  driver().set_access(base_, bytes_, added);
  users_ = std::move(users);
}

void ImportedExtent::unmap_chunks() noexcept {
  try {
    if (mapped_ > 0) driver().unmap(base_, mapped_);
    driver().free_address(base_, bytes_);
  } catch (...) {
    // The platform is shutting down and removes the mapping.
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

std::shared_ptr<ImportedExtent> import_extent(IpcPeer& peer, const IpcHandleFields& fields,
                                              int device, int owner) {
  ImportTable& table = import_table();
  const ImportTable::Key key{peer.process().pid, peer.process().start_time, fields.extent_id,
                             device};
  const std::shared_ptr<ImportTable::Entry> entry = table.entry(key);
  const std::lock_guard mapping(entry->mapping);
  {
    const std::lock_guard lock(table.mutex);
    if (auto extent = entry->extent.lock()) return extent;
  }
  auto extent = std::make_shared<ImportedExtent>(peer, fields, device, owner);
  {
    const std::lock_guard lock(table.mutex);
    GANTRY_ASSERT(entry->extent.expired(), "an extent is mapped twice for one device");
    entry->extent = extent;
  }
  extent->open_to_peers();  // peers that got access while it was not in the table
  return extent;
}

std::size_t imported_bytes(int device) {
  std::size_t bytes = 0;
  for (const auto& extent : import_table().in_use(device)) bytes += extent->bytes();
  return bytes;
}

}  // namespace gantry::memory
