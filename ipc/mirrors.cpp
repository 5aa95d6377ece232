#include "ipc/mirrors.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "core/assert.hpp"

namespace gantry::memory {
namespace {

/// The mirrors of this process that are not closed.
struct MirrorTable {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::map<std::uint64_t, std::weak_ptr<Mirrors>> all;
};

MirrorTable& mirror_table() {
  static auto& instance = *new MirrorTable();
  return instance;
}

// The run of an offer. Throws: Error if it is malformed.
Run run_in(const IpcOffer& offer) {
  if (offer.bytes == 0 || offer.range_bytes < offer.bytes ||
      offer.offset > offer.range_bytes - offer.bytes) {
    throw Error("expected chunks inside of their address range");
  }
  return {offer.offset, offer.offset + offer.bytes};
}

void check_chunks(const IpcOffer& offer, std::size_t descriptors) {
  std::uint64_t sum = 0;
  const bool is_whole = offer.count == descriptors && offer.count <= kChunksPerPacket;
  for (std::uint32_t i = 0; is_whole && i < offer.count; ++i) {
    if (offer.chunks[i] > offer.bytes) break;
    sum += offer.chunks[i];
  }
  if (is_whole && sum == offer.bytes) return;
  throw Error(
      fmt::format("expected {} descriptors of chunks, but got {}; this process may have too "
                  "many open files (ulimit -n)",
                  offer.count, descriptors));
}

}  // namespace

std::shared_ptr<Mirrors> Mirrors::make(int device) {
  MirrorTable& table = mirror_table();
  const std::lock_guard lock(table.mutex);
  const std::shared_ptr<Mirrors> made(new Mirrors(device, table.last + 1));
  table.all.emplace(made->number(), made);
  ++table.last;
  return made;
}

std::shared_ptr<Mirrors> Mirrors::find(std::uint64_t number) {
  MirrorTable& table = mirror_table();
  const std::lock_guard lock(table.mutex);
  const auto found = table.all.find(number);
  return found != table.all.end() ? found->second.lock() : nullptr;
}

Mirrors::~Mirrors() { close(); }

Mirrors::Mirror& Mirrors::mirror_of(const ProcessStamp& owner, const IpcOffer& offer) {
  Mirror& mirror = mirrors_[{owner.pid, owner.start_time, offer.range}];
  if (mirror.base == nullptr) {
    mirror.base = static_cast<std::byte*>(
        driver().reserve_address(offer.range_bytes, driver().chunk_granularity(device_)));
    mirror.bytes = offer.range_bytes;
  }
  if (mirror.bytes != offer.range_bytes) throw Error("expected an address range of one size");
  return mirror;
}

std::byte* Mirrors::map(const ProcessStamp& owner, const IpcOffer& offer,
                        std::span<const UniqueFd> descriptors) {
  const Run run = run_in(offer);
  check_chunks(offer, descriptors.size());
  const std::lock_guard lock(mutex_);
  if (is_closed_) throw Error("the group has ended");
  Mirror& mirror = mirror_of(owner, offer);
  if (mirror.mapped.first_inside(run).bytes() != 0) {
    throw Error("expected chunks at addresses without any");
  }
  mirror.mapped.add(run);  // nothing may fail once all is mapped
  std::size_t end = run.begin;
  try {
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const NativeChunk chunk =
          driver().import_chunk(device_, descriptors[i].get(), offer.chunks[i]);
      try {
        driver().map_chunk(mirror.base + end, offer.chunks[i], chunk);
        end += offer.chunks[i];
      } catch (...) {
        driver().release_chunk(chunk);
        throw;
      }
      driver().release_chunk(chunk);  // the mapping keeps the chunk
    }
    const int users[] = {device_};
    driver().set_access(mirror.base + run.begin, run.bytes(), users);
  } catch (...) {
    if (end != run.begin) driver().unmap(mirror.base + run.begin, end - run.begin);
    mirror.mapped.remove(run);
    throw;
  }
  return mirror.base;
}

void Mirrors::unmap(const ProcessStamp& owner, const IpcOffer& withdrawal) {
  const Run whole = run_in(withdrawal);
  const std::lock_guard lock(mutex_);
  const auto found = mirrors_.find({owner.pid, owner.start_time, withdrawal.range});
  if (found == mirrors_.end()) return;
  Mirror& mirror = found->second;
  for (;;) {
    const Run run = mirror.mapped.first_inside(whole);
    if (run.bytes() == 0) return;
    mirror.mapped.remove(run);
    driver().unmap(mirror.base + run.begin, run.bytes());
  }
}

void Mirrors::close() noexcept {
  {
    MirrorTable& table = mirror_table();
    const std::lock_guard lock(table.mutex);
    table.all.erase(number_);
  }
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  if (in_bad_fork()) return;
  for (auto& [key, mirror] : mirrors_) {
    try {
      while (!mirror.mapped.empty()) {
        const Run run = mirror.mapped.last();
        driver().unmap(mirror.base + run.begin, run.bytes());
        mirror.mapped.remove(run);
      }
      if (mirror.base != nullptr) driver().free_address(mirror.base, mirror.bytes);
    } catch (...) {
      // The platform is shutting down and removes the mappings.
    }
  }
  mirrors_.clear();
}

std::size_t Mirrors::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [key, mirror] : mirrors_) sum += mirror.mapped.bytes();
  return sum;
}

std::size_t mirrored_bytes(int device) {
  std::vector<std::shared_ptr<Mirrors>> all;  // unlocked before the last owner may close one
  {
    MirrorTable& table = mirror_table();
    const std::lock_guard lock(table.mutex);
    for (const auto& [number, known] : table.all) {
      if (auto mirrors = known.lock()) all.push_back(std::move(mirrors));
    }
  }
  std::size_t sum = 0;
  for (const auto& mirrors : all) {
    if (mirrors->device() == device) sum += mirrors->bytes();
  }
  return sum;
}

}  // namespace gantry::memory
