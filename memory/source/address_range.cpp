#include "memory/source/address_range.hpp"

#include <algorithm>
#include <iterator>

#include <gantry/core/log.hpp>

#include "device/peer_access.hpp"

namespace gantry::memory {
namespace {

// The ranges of this process, to be report about new peers.
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

AddressRange::AddressRange(int device, std::size_t bytes)
    : devices_{device},
      base_(static_cast<std::byte*>(driver().reserve_address(bytes, kFineChunkBytes))),
      bytes_(bytes) {
  Ranges& known = ranges();
  const std::lock_guard lock(known.mutex);
  for (const int peer : devices_with_access_to(device)) devices_.push_back(peer);
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
    logging::warn("an address range could not be given back to the driver");
  }
}

void AddressRange::map(std::size_t offset, std::span<const Chunk> chunks) {
  const std::lock_guard lock(mutex_);
  std::size_t end = offset;
  std::size_t noted = 0;
  try {
    for (const Chunk& chunk : chunks) {
      mappings_.emplace(offset + (end - offset), Mapping{chunk});
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
        logging::error("chunks that could not be opened could not be unmapped either");
      }
    }
    auto first = mappings_.find(offset);
    mappings_.erase(first, std::next(first, static_cast<std::ptrdiff_t>(noted)));
    throw;
  }
  mapped_ += end - offset;
  ++runs_;
  const auto first = mappings_.find(offset);
  if (first != mappings_.begin()) {
    const auto& [before, mapping] = *std::prev(first);
    if (before + mapping.chunk.bytes == offset) --runs_;
  }
  if (mappings_.contains(end)) --runs_;
}

std::vector<Chunk> AddressRange::unmap(std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<Chunk> chunks;
  const auto first = mappings_.find(offset);
  auto last = first;
  for (; last != mappings_.end() && last->first < offset + bytes; ++last) {
    chunks.push_back(last->second.chunk);
  }
  driver().unmap(base_ + offset, bytes);
  bool joins_left = false;
  if (first != mappings_.begin()) {
    const auto& [before, mapping] = *std::prev(first);
    joins_left = before + mapping.chunk.bytes == offset;
  }
  const bool joins_right = last != mappings_.end() && last->first == offset + bytes;
  mappings_.erase(first, last);
  mapped_ -= bytes;
  if (joins_left && joins_right) {
    ++runs_;
  } else if (!joins_left && !joins_right) {
    --runs_;
  }
  return chunks;
}

AddressRange::Mappings::const_iterator AddressRange::at_or_before(std::size_t offset) const {
  auto found = mappings_.upper_bound(offset);
  return found == mappings_.begin() ? found : std::prev(found);
}

std::pair<std::size_t, std::size_t> AddressRange::whole_chunks(std::size_t begin, std::size_t end,
                                                               std::size_t enough) const {
  const std::lock_guard lock(mutex_);
  std::pair<std::size_t, std::size_t> best{begin, begin};
  std::pair<std::size_t, std::size_t> run{begin, begin};
  for (auto it = mappings_.lower_bound(begin); it != mappings_.end(); ++it) {
    const auto& [offset, mapping] = *it;
    if (offset + mapping.chunk.bytes > end) break;
    if (mapping.pins > 0) continue;
    if (run.second != offset) run = {offset, offset};
    run.second = offset + mapping.chunk.bytes;
    if (run.second - run.first > best.second - best.first) best = run;
    if (best.second - best.first >= enough) break;
  }
  return best;
}

AddressRange::Extent AddressRange::extent(std::size_t begin, std::size_t end) const {
  const std::lock_guard lock(mutex_);
  Extent extent;
  auto it = at_or_before(begin);
  extent.offset = it->first;
  for (; it != mappings_.end() && it->first < end; ++it) extent.chunks.push_back(it->second.chunk);
  return extent;
}

std::pair<std::size_t, std::size_t> AddressRange::bounds(std::size_t begin,
                                                         std::size_t end) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto& [last, mapping] = *at_or_before(end - 1);
  return {at_or_before(begin)->first, last + mapping.chunk.bytes};
}

void AddressRange::pin(std::size_t begin, std::size_t end) {
  const std::lock_guard lock(mutex_);
  for (auto it = mappings_.find(at_or_before(begin)->first);
       it != mappings_.end() && it->first < end; ++it) {
    ++it->second.pins;
  }
}

void AddressRange::unpin(std::size_t begin, std::size_t end) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto it = mappings_.find(at_or_before(begin)->first);
       it != mappings_.end() && it->first < end; ++it) {
    --it->second.pins;
  }
}

std::size_t AddressRange::mapped() const {
  const std::lock_guard lock(mutex_);
  return mapped_;
}

std::size_t AddressRange::runs() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

std::vector<std::pair<std::size_t, std::size_t>> AddressRange::mapped_runs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (const auto& [offset, mapping] : mappings_) {
    if (!runs.empty() && runs.back().first + runs.back().second == offset) {
      runs.back().second += mapping.chunk.bytes;
    } else {
      runs.emplace_back(offset, mapping.chunk.bytes);
    }
  }
  return runs;
}

void AddressRange::open_to(int device) {
  const std::lock_guard lock(mutex_);
  if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return;
  std::size_t begin = 0;
  std::size_t end = 0;
  const auto open = [&] {
    if (end != begin) driver().set_access(base_ + begin, end - begin, std::span(&device, 1));
  };
  for (const auto& [offset, mapping] : mappings_) {
    if (offset != end) {
      open();
      begin = offset;
    }
    end = offset + mapping.chunk.bytes;
  }
  open();
  devices_.push_back(device);
}

}  // namespace gantry::memory
