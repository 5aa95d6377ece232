#include "memory/source/chunk_store.hpp"

#include <algorithm>
#include <utility>

#include <gantry/core/log.hpp>

namespace gantry::memory {
namespace {

// cuMemSetAccess fails near 524,288 live mappings in a process, all devices together (seen with
// driver 580); past half of that, everything that can be is made of coarse chunks.
constexpr std::size_t kManyChunks = 262144;
std::atomic<std::size_t> live_chunks{0};

std::size_t chunk_bytes_for(std::size_t missing, bool coarse) {
  coarse = coarse || live_chunks.load(std::memory_order_relaxed) > kManyChunks;
  return coarse && missing >= kCoarseChunkBytes ? kCoarseChunkBytes : kFineChunkBytes;
}

}  // namespace

std::vector<Chunk> ChunkStore::acquire(std::size_t bytes, std::size_t limit, bool coarse) {
  std::vector<Chunk> taken;
  std::size_t missing = bytes;
  std::size_t made = 0;
  // What cannot be had takes nothing, not even for a moment: others would miss it meanwhile.
  bool enough = may_be_had(bytes, limit);
  try {
    while (enough && missing > 0) {
      if (take_spare(missing, taken)) continue;
      const std::size_t size = chunk_bytes_for(missing, coarse);
      if (create(size, limit, taken) ||
          (size != kFineChunkBytes && create(kFineChunkBytes, limit, taken))) {
        missing -= taken.back().bytes;
        made += taken.back().bytes;
      } else {
        enough = release_spare(missing) > 0;  // spare ones that are too large here
      }
    }
  } catch (...) {
    give_back(std::move(taken));
    throw;
  }
  if (missing == 0) return taken;
  give_back(std::move(taken));
  release_spare(made);
  return {};
}

// False if limit or device have less than `bytes`.
bool ChunkStore::may_be_had(std::size_t bytes, std::size_t limit) const {
  const std::size_t unused = spare();
  // The two are not read at once: another thread may have given spare ones back in between.
  const std::size_t held = held_.load(std::memory_order_relaxed);
  const std::size_t used = held - std::min(held, unused);
  if (bytes > limit || used > limit - bytes) return false;
  // For a few chunks it is cheaper to try.
  if (bytes <= unused || bytes - unused <= kCoarseChunkBytes) return true;
  return driver().memory_info(device_).free + unused >= bytes;
}

// Takes one spare chunk that is not larger than what is missing.
bool ChunkStore::take_spare(std::size_t& missing, std::vector<Chunk>& taken) {
  taken.reserve(taken.size() + 1);
  const std::lock_guard lock(mutex_);
  std::vector<Chunk>* stock = missing >= kCoarseChunkBytes && !coarse_.empty() ? &coarse_ : &fine_;
  if (stock->empty()) return false;
  taken.push_back(stock->back());
  stock->pop_back();
  missing -= taken.back().bytes;
  return true;
}

// Makes one chunk; false if the limit or the device does not allow it.
bool ChunkStore::create(std::size_t bytes, std::size_t limit, std::vector<Chunk>& made) {
  made.reserve(made.size() + 1);
  {
    // Room for every chunk there is, so that give_back() never allocates.
    const std::lock_guard lock(mutex_);
    std::size_t held = held_.load(std::memory_order_relaxed);
    if (bytes > limit || held > limit - bytes) return false;
    held += bytes;
    if (fine_.capacity() < held / kFineChunkBytes) fine_.reserve(2 * held / kFineChunkBytes);
    if (coarse_.capacity() < held / kCoarseChunkBytes) {
      coarse_.reserve(2 * held / kCoarseChunkBytes);
    }
    // Others may subtract without the lock.
    held_.fetch_add(bytes, std::memory_order_relaxed);
  }
  NativeChunk native = NativeChunk::none;
  try {
    native = driver().create_chunk(device_, bytes);
  } catch (...) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    throw;
  }
  if (native == NativeChunk::none) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  created_.fetch_add(1, std::memory_order_relaxed);
  live_chunks.fetch_add(1, std::memory_order_relaxed);
  made.push_back({native, bytes});
  return true;
}

void ChunkStore::give_back(std::vector<Chunk> chunks) noexcept {
  const std::lock_guard lock(mutex_);
  for (const Chunk& chunk : chunks) {
    (chunk.bytes == kCoarseChunkBytes ? coarse_ : fine_).push_back(chunk);
  }
}

std::size_t ChunkStore::release_spare(std::size_t bytes) noexcept {
  std::size_t gone = 0;
  while (gone < bytes) {
    Chunk chunk;
    {
      const std::lock_guard lock(mutex_);
      std::vector<Chunk>& stock = coarse_.empty() ? fine_ : coarse_;
      if (stock.empty()) break;
      chunk = stock.back();
      stock.pop_back();
    }
    try {
      driver().release_chunk(chunk.native);
    } catch (...) {
      logging::warn("a chunk of device memory could not be given back; it stays in the cache");
      const std::lock_guard lock(mutex_);
      (chunk.bytes == kCoarseChunkBytes ? coarse_ : fine_).push_back(chunk);
      break;
    }
    held_.fetch_sub(chunk.bytes, std::memory_order_relaxed);
    released_.fetch_add(1, std::memory_order_relaxed);
    live_chunks.fetch_sub(1, std::memory_order_relaxed);
    gone += chunk.bytes;
  }
  return gone;
}

std::size_t ChunkStore::spare() const {
  const std::lock_guard lock(mutex_);
  return fine_.size() * kFineChunkBytes + coarse_.size() * kCoarseChunkBytes;
}

}  // namespace gantry::memory
