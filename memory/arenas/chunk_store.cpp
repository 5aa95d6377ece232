#include "memory/arenas/chunk_store.hpp"

#include <algorithm>
#include <utility>

#include <gantry/core/log.hpp>

#include "core/assert.hpp"

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

MappingCallbacks& MappingCallbacks::instance() noexcept {
  static auto& callbacks = *new MappingCallbacks();
  return callbacks;
}

std::vector<Chunk> ChunkStore::acquire(std::size_t bytes, std::size_t limit, bool coarse) {
  std::vector<Chunk> taken;
  std::size_t missing = bytes;
  std::size_t made = 0;
  // A request that cannot succeed takes nothing, since other threads may need it meanwhile.
  bool enough = is_available(bytes, limit);
  try {
    while (enough && missing > 0) {
      if (take_unmapped(missing, taken)) continue;
      const std::size_t size = chunk_bytes_for(missing, coarse);
      if (create(size, limit, taken) ||
          (size != kFineChunkBytes && create(kFineChunkBytes, limit, taken))) {
        missing -= taken.back().bytes;
        made += taken.back().bytes;
      } else {
        enough = release_unmapped(missing) > 0;  // unmapped ones that are too large here
      }
    }
  } catch (...) {
    recycle(std::move(taken));
    throw;
  }
  if (missing == 0) {
    GANTRY_ASSERT(held() >= bytes, "a request has more chunks than the store holds");
    std::size_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < held() && !peak_.compare_exchange_weak(peak, held(), std::memory_order_relaxed)) {
    }
    return taken;
  }
  recycle(std::move(taken));
  release_unmapped(made);
  return {};
}

// False if limit or device have less than `bytes`.
bool ChunkStore::is_available(std::size_t bytes, std::size_t limit) const {
  const std::size_t unused = unmapped();
  // The two are not read at once: another thread may recycle chunks in between.
  const std::size_t held = held_.load(std::memory_order_relaxed);
  const std::size_t used = held - std::min(held, unused);
  if (bytes > limit || used > limit - bytes) return false;
  // For a few chunks it is cheaper to try.
  if (bytes <= unused || bytes - unused <= kCoarseChunkBytes) return true;
  return driver().memory_info(device_).free + unused >= bytes;
}

// Takes one unmapped chunk of at most `missing` bytes.
bool ChunkStore::take_unmapped(std::size_t& missing, std::vector<Chunk>& taken) {
  taken.reserve(taken.size() + 1);
  const std::lock_guard lock(mutex_);
  std::vector<Chunk>* list = missing >= kCoarseChunkBytes && !coarse_.empty() ? &coarse_ : &fine_;
  if (list->empty()) return false;
  GANTRY_ASSERT(list->back().bytes <= missing, "a request takes a chunk that is larger");
  taken.push_back(list->back());
  list->pop_back();
  missing -= taken.back().bytes;
  return true;
}

// Makes one chunk; false if the limit or the device does not allow it.
bool ChunkStore::create(std::size_t bytes, std::size_t limit, std::vector<Chunk>& made) {
  made.reserve(made.size() + 1);
  {
    // Room for every chunk there is, so that recycle() never allocates.
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

void ChunkStore::recycle(std::vector<Chunk> chunks) noexcept {
  const std::lock_guard lock(mutex_);
  for (const Chunk& chunk : chunks) add_unmapped(chunk);
}

// With the lock held. create() made room.
void ChunkStore::add_unmapped(const Chunk& chunk) noexcept {
  GANTRY_ASSERT(chunk.native != NativeChunk::none, "a chunk without memory comes back");
  GANTRY_ASSERT(chunk.bytes == kFineChunkBytes || chunk.bytes == kCoarseChunkBytes,
                "a chunk has neither of the two sizes");
  std::vector<Chunk>& list = chunk.bytes == kCoarseChunkBytes ? coarse_ : fine_;
  GANTRY_ASSERT(list.size() < list.capacity(), "the store has no room for a chunk that it made");
  list.push_back(chunk);
}

std::size_t ChunkStore::release_unmapped(std::size_t bytes) noexcept {
  std::size_t released = 0;
  while (released < bytes) {
    Chunk chunk;
    {
      const std::lock_guard lock(mutex_);
      std::vector<Chunk>& list = coarse_.empty() ? fine_ : coarse_;
      if (list.empty()) break;
      chunk = list.back();
      list.pop_back();
    }
    try {
      driver().release_chunk(chunk.native);
    } catch (...) {
      logging::warn("memory: failed to release a chunk of device memory; it stays in the cache");
      const std::lock_guard lock(mutex_);
      add_unmapped(chunk);
      break;
    }
    GANTRY_ASSERT(held() >= chunk.bytes, "more memory is released than was held");
    held_.fetch_sub(chunk.bytes, std::memory_order_relaxed);
    released_bytes_.fetch_add(chunk.bytes, std::memory_order_relaxed);
    released_.fetch_add(1, std::memory_order_relaxed);
    live_chunks.fetch_sub(1, std::memory_order_relaxed);
    released += chunk.bytes;
  }
  return released;
}

Stat ChunkStore::reserved() const {
  Stat reserved;
  reserved.current = static_cast<std::int64_t>(held());
  reserved.peak =
      std::max(reserved.current, static_cast<std::int64_t>(peak_.load(std::memory_order_relaxed)));
  reserved.freed = static_cast<std::int64_t>(released_bytes_.load(std::memory_order_relaxed));
  reserved.allocated = reserved.current + reserved.freed;
  return reserved;
}

std::size_t ChunkStore::unmapped() const {
  const std::lock_guard lock(mutex_);
  return fine_.size() * kFineChunkBytes + coarse_.size() * kCoarseChunkBytes;
}

}  // namespace gantry::memory
