#include "memory/heap/thread_cache.hpp"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "core/assert.hpp"

namespace gantry::memory {
namespace {

// Lock order: a heap's lock before this one.
struct CacheRegistry {
  std::mutex mutex;
  std::vector<ThreadCache*> caches;
};

CacheRegistry& registry() {
  static auto& instance = *new CacheRegistry();
  return instance;
}

// Frees blocks of magazines, linked through next_in_bin. Their frees were counted and numbered.
void free_cached(HeapBlock* blocks) noexcept {
  while (blocks != nullptr) {
    HeapBlock& block = *blocks;
    blocks = block.next_in_bin;
    block.arena->free.insert(block);
  }
}

}  // namespace

void Magazines::flush_account() noexcept {
  pool->live_blocks += account.all.now().blocks;
  heap->account.append(account);
  account = {};
}

constinit thread_local ThreadCache* ThreadCache::current_ = nullptr;

// Ends the cache with its thread; other thread-local objects may still free blocks afterwards.
struct ThreadCacheOwner {
  ~ThreadCacheOwner() {
    ended = true;
    delete ThreadCache::current_;
    ThreadCache::current_ = nullptr;
  }
  bool ended = false;
};

namespace {

thread_local ThreadCacheOwner owner;

}  // namespace

ThreadCache::ThreadCache() : gate_(AsymmetricFence::is_free() ? 0 : kFenced) {}

// The parent's other threads may have been using their caches. A child has no
// cache, so a hit needs no check for a fork.
void ThreadCache::abandon_in_child() { current_ = nullptr; }

ThreadCache* ThreadCache::make() noexcept {
  static const bool watches_forks = pthread_atfork(nullptr, nullptr, abandon_in_child) == 0;
  if (owner.ended || !watches_forks || in_bad_fork()) return nullptr;
  try {
    auto* cache = new ThreadCache();
    const std::lock_guard lock(registry().mutex);
    registry().caches.push_back(cache);
    current_ = cache;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return current_;
}

ThreadCache::~ThreadCache() {
  // Another thread of the parent may have held the locks at the fork.
  if (in_bad_fork()) return;
  for (Magazines* table : tables_) {
    const HeapLock lock(table->heap->mutex);
    HeapBlock* blocks = nullptr;
    while (!enter()) std::this_thread::yield();
    empty(*table->heap, &blocks);
    leave();
    free_cached(blocks);
  }
  GANTRY_ASSERT(kept_bytes_ == 0, "an empty cache counts bytes of blocks");
  {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().caches, this);
  }
  for (Magazines* table : tables_) delete table;
}

Magazines* ThreadCache::find(const Pool& pool, std::uint64_t stream_id) noexcept {
  const auto is_meant = [&](const Magazines* table) {
    return table->pool == &pool && table->stream_id == stream_id;
  };
  if (last_ != nullptr && is_meant(last_)) return last_;
  const auto found = std::ranges::find_if(tables_, is_meant);
  if (found == tables_.end()) return nullptr;
  return last_ = *found;
}

void ThreadCache::set_route(const Pool& pool, std::uint64_t stream_id) noexcept {
  Magazines* const table = find(pool, stream_id);
  if (table == nullptr) return;
  route_ = table;
  route_heap_ = pool.heap;
  route_stream_ = stream_id;
}

// The magazines for a block's stream. nullptr without memory for them, and in
// two more cases. An external stream may be destroyed before the block leaves
// the magazine. The pool of a capture must know which of its blocks are free.
Magazines* ThreadCache::find_or_open(const HeapBlock& block) noexcept {
  if (last_ != nullptr && last_->serves(block)) return last_;
  StreamBlocks& stream = *block.stream;
  Pool& pool = owner_of(block);
  Magazines* table = find(pool, stream.clock.id());
  if (table == nullptr) {
    if (stream.clock.is_external() || pool.serves_captures) return nullptr;
    table = open(pool, stream.clock);
    if (table == nullptr) return nullptr;
  }
  if (!table->serves(block)) {
    GANTRY_ASSERT(table->streams[1] == nullptr, "a pool has more than two arenas");
    (table->streams[0] == nullptr ? table->streams[0] : table->streams[1]) = &stream;
  }
  return last_ = table;
}

Magazines* ThreadCache::open(Pool& pool, const StreamClock& clock) noexcept {
  try {
    auto table = std::make_unique<Magazines>();
    table->pool = &pool;
    table->heap = pool.state;
    table->bound = static_cast<std::int64_t>(
        std::min<std::size_t>(pool.state->config.max_split_bytes, INT64_MAX));
    table->clock = &clock;
    table->stream_id = clock.id();
    std::vector<Magazines*> grown = tables_;
    grown.push_back(table.get());
    while (!enter()) std::this_thread::yield();
    tables_.swap(grown);
    leave();
    return table.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// The caller is the owner, or has claimed the cache.
std::size_t ThreadCache::empty(HeapState& heap, HeapBlock** blocks) noexcept {
  std::size_t kept = 0;
  for (Magazines* table : tables_) {
    if (table->heap != &heap) continue;
    table->flush_counts();
    for (Magazines::Magazine& magazine : table->by_grains) {
      for (std::size_t i = 0; i < magazine.count; ++i) {
        HeapBlock& block = *magazine.blocks[i];
        GANTRY_ASSERT(block.is(BlockUse::cached), "a block of a magazine is not cached");
        GANTRY_ASSERT(table->serves(block), "a block is in the magazine of another stream");
        kept += block.bytes;
        if (blocks == nullptr) continue;
        GANTRY_ASSERT(kept_bytes_ >= Magazines::kept(block.bytes),
                      "more bytes leave a cache than entered it");
        kept_bytes_ -= Magazines::kept(block.bytes);
        block.next_in_bin = *blocks;
        *blocks = &block;
      }
      if (blocks != nullptr) magazine.clear();
    }
  }
  return kept;
}

ThreadCache::AllCachesPaused::AllCachesPaused() noexcept {
  registry().mutex.lock();
  for (ThreadCache* cache : registry().caches) {
    [[maybe_unused]] const std::uint8_t before =
        cache->gate_.fetch_or(kClaimed, std::memory_order_seq_cst);
    GANTRY_ASSERT((before & kClaimed) == 0, "two threads work on the cache of a third one");
  }
  AsymmetricFence::heavy();
  for (const ThreadCache* cache : registry().caches) {
    while (cache->busy_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
}

ThreadCache::AllCachesPaused::~AllCachesPaused() {
  for (ThreadCache* cache : registry().caches) {
    cache->gate_.fetch_and(static_cast<std::uint8_t>(~kClaimed), std::memory_order_release);
  }
  registry().mutex.unlock();
}

std::size_t ThreadCache::flush_counts(HeapState& heap) noexcept { return empty_all(heap, nullptr); }

void ThreadCache::flush_blocks(HeapState& heap) noexcept {
  HeapBlock* blocks = nullptr;
  empty_all(heap, &blocks);
  free_cached(blocks);
}

// Takes all blocks out if `blocks` is not nullptr, linked through next_in_bin.
std::size_t ThreadCache::empty_all(HeapState& heap, HeapBlock** blocks) noexcept {
  const AllCachesPaused paused;
  std::size_t kept = 0;
  for (ThreadCache* cache : registry().caches) kept += cache->empty(heap, blocks);
  return kept;
}

}  // namespace gantry::memory
