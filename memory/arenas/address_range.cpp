#include "memory/arenas/address_range.hpp"

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/assert.hpp"
#include "device/peer_access.hpp"

namespace gantry::memory {
namespace {

// All ranges of this process. They are opened to devices that become peers.
struct Ranges {
  std::mutex mutex;
  std::vector<AddressRange*> all;
};

Ranges& ranges() {
  static auto& instance = *[] {
    auto* made = new Ranges();
    on_peer_access([made](int from, int to) {
      const std::lock_guard lock(made->mutex);
      for (AddressRange* range : made->all) {
        if (range->device() == to) range->open_to(from);
      }
    });
    return made;
  }();
  return instance;
}

}  // namespace

AddressRange::AddressRange(ChunkStore& chunks, std::size_t bytes)
    : chunks_(chunks),
      bytes_(bytes),
      base_(static_cast<std::byte*>(driver().reserve_address(bytes, kFineChunkBytes))),
      devices_{chunks.device()} {
  Ranges& known = ranges();
  const std::lock_guard lock(known.mutex);
  for (const int peer : devices_with_access_to(device())) devices_.push_back(peer);
  known.all.push_back(this);
}

AddressRange::~AddressRange() {
  {
    const std::lock_guard lock(ranges().mutex);
    std::erase(ranges().all, this);
  }
  try {
    driver().free_address(base_, bytes_);
  } catch (...) {
    logging::warn("memory: failed to free a range of device addresses");
  }
}

bool AddressRange::map(Run run, std::size_t limit, bool coarse) {
  std::vector<Chunk> chunks;
  try {
    chunks = chunks_.acquire(run.bytes(), limit, coarse);
    if (chunks.empty()) return false;
    map_chunks(run.begin, chunks);
  } catch (const CudaError& error) {
    chunks_.recycle(std::move(chunks));
    if (error.code() != kCudaOutOfMemory) throw;
    return false;
  } catch (...) {
    chunks_.recycle(std::move(chunks));
    throw;
  }
  const MappedChunks mapped{base_, bytes_, base_ + run.begin, chunks};
  bool is_usable = true;
  MappingCallbacks::instance().mapped.for_each(
      [&](MapCallback callback) { is_usable = callback(mapped) && is_usable; });
  if (!is_usable) unmap(run);
  return is_usable;
}

// Maps `chunks` side by side. Throws: CudaError, std::bad_alloc; nothing is mapped then.
void AddressRange::map_chunks(std::size_t offset, std::span<const Chunk> chunks) {
  const std::lock_guard lock(mutex_);
  std::size_t end = offset;
  std::size_t noted = 0;
  try {
    for (const Chunk& chunk : chunks) {
      GANTRY_ASSERT(end + chunk.bytes <= bytes_, "a chunk is mapped behind the range");
      [[maybe_unused]] const bool is_new = mappings_.emplace(end, Mapping{chunk}).second;
      GANTRY_ASSERT(is_new, "a chunk is mapped where another one is");
      ++noted;
      driver().map_chunk(base_ + end, chunk.bytes, chunk.native);
      end += chunk.bytes;
    }
    driver().set_access(base_ + offset, end - offset, devices_);
  } catch (...) {
    if (end != offset) {
      try {
        driver().unmap(base_ + offset, end - offset);
      } catch (...) {
        logging::error("memory: failed to unmap chunks to which no device has access");
      }
    }
    const auto first = mappings_.find(offset);
    mappings_.erase(first, std::next(first, static_cast<std::ptrdiff_t>(noted)));
    throw;
  }
  runs_ += 1 - runs_beside({offset, end});
}

// The number of mapped runs, up to 2, that end or begin where `run` does. All of it is mapped.
std::size_t AddressRange::runs_beside(Run run) const {
  const auto first = mappings_.find(run.begin);
  const bool on_the_left = first != mappings_.begin() && end_of(*std::prev(first)) == run.begin;
  return std::size_t{on_the_left} + mappings_.count(run.end);
}

void AddressRange::unmap(Run run) {
  std::vector<Chunk> chunks;
  {
    const std::lock_guard lock(mutex_);
    const auto first = mappings_.find(run.begin);
    auto last = first;
    GANTRY_ASSERT(first != mappings_.end(), "a run is unmapped where no chunk begins");
    for (; last != mappings_.end() && last->first < run.end; ++last) {
      GANTRY_ASSERT(last->second.pins == 0, "a chunk is unmapped that other processes may map");
      chunks.push_back(last->second.chunk);
    }
    GANTRY_ASSERT(end_of(*std::prev(last)) == run.end,
                  "a run is unmapped that ends inside a chunk");
    MappingCallbacks::instance().unmapping.for_each(
        [&](UnmapCallback callback) { callback(base_ + run.begin, run.bytes()); });
    driver().unmap(base_ + run.begin, run.bytes());
    runs_ += runs_beside(run) - 1;
    mappings_.erase(first, last);
  }
  chunks_.recycle(std::move(chunks));
}

Run AddressRange::whole_chunks(Run within, std::size_t enough) const {
  const std::lock_guard lock(mutex_);
  Run best;
  Run run;
  for (auto it = mappings_.lower_bound(within.begin); it != mappings_.end(); ++it) {
    const auto& [offset, mapping] = *it;
    if (end_of(*it) > within.end) break;
    if (mapping.pins > 0) continue;
    if (run.end != offset) run = {offset, offset};
    run.end = end_of(*it);
    if (run.bytes() > best.bytes()) best = run;
    if (best.bytes() >= enough) break;
  }
  return best;
}

BlockExtent AddressRange::pin(Run block) {
  const std::lock_guard lock(mutex_);
  const auto first = mapping_of(block.begin);
  GANTRY_ASSERT(block.begin < end_of(*first), "a block is pinned where no chunk is mapped");
  BlockExtent extent;
  extent.offset = block.begin - first->first;
  extent.range = base_;
  extent.range_bytes = bytes_;
  for (auto it = first; it != mappings_.end() && it->first < block.end; ++it) {
    const Chunk& chunk = it->second.chunk;
    extent.chunks.push_back(chunk);
    extent.bytes += chunk.bytes;
  }
  GANTRY_ASSERT(extent.offset + block.bytes() <= extent.bytes,
                "a block is pinned that ends where no chunk is mapped");
  PinnedExtent& known = pinned_[{first->first, first->first + extent.bytes}];
  if (known.pins++ == 0) known.id = new_extent_id();
  extent.extent_id = known.id;
  for (auto it = first; it != mappings_.end() && it->first < block.end; ++it) ++it->second.pins;
  return extent;
}

void AddressRange::unpin(Run block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto first = mapping_of(block.begin);
  std::size_t end = first->first;
  for (auto it = first; it != mappings_.end() && it->first < block.end; ++it) {
    GANTRY_ASSERT(it->second.pins > 0, "a chunk is unpinned more often than it was pinned");
    --it->second.pins;
    end = end_of(*it);
  }
  const auto known = pinned_.find({first->first, end});
  GANTRY_ASSERT(known != pinned_.end(), "chunks are unpinned that were not pinned together");
  if (known != pinned_.end() && --known->second.pins == 0) pinned_.erase(known);
}

// With the lock held.
std::vector<Run> AddressRange::list_runs() const {
  std::vector<Run> runs;
  for (const auto& [offset, mapping] : mappings_) {
    if (runs.empty() || runs.back().end != offset) runs.push_back({offset, offset});
    runs.back().end += mapping.chunk.bytes;
  }
  return runs;
}

void AddressRange::verify() const {
  const std::lock_guard lock(mutex_);
  std::size_t end = 0;
  for (const auto& [offset, mapping] : mappings_) {
    GANTRY_ASSERT(offset >= end, "two chunks are mapped at one address");
    end = offset + mapping.chunk.bytes;
  }
  GANTRY_ASSERT(end <= bytes_, "a chunk is mapped behind the range");
  GANTRY_ASSERT(list_runs().size() == runs_, "the number of mapped runs is wrong");
  for (const auto& [offset, mapping] : mappings_) {
    [[maybe_unused]] int pins = 0;
    for (const auto& [extent, known] : pinned_) {
      GANTRY_ASSERT(known.pins > 0, "an extent that no process may map is kept");
      if (extent.first <= offset && offset < extent.second) pins += known.pins;
    }
    GANTRY_ASSERT(mapping.pins == pins, "a chunk has other pins than the extents that it is in");
  }
}

void AddressRange::open_to(int device) {
  const std::lock_guard lock(mutex_);
  if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return;
  for (const Run& run : list_runs()) {
    driver().set_access(base_ + run.begin, run.bytes(), std::span(&device, 1));
  }
  devices_.push_back(device);
}

}  // namespace gantry::memory
