#include "memory/thread_cache.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "memory/device_heap.hpp"

namespace gantry::memory {
namespace {

bool register_membarrier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

// Lock order: a heap's lock before this one.
struct CacheRegistry {
  std::mutex mutex;
  std::vector<ThreadCache*> caches;
};

CacheRegistry& registry() {
  static auto& instance = *new CacheRegistry();
  return instance;
}

}  // namespace

thread_local ThreadCache* ThreadCache::current_ = nullptr;
bool ThreadCache::owner_fences_ = !register_membarrier();

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

void count_large(Magazines& table) noexcept {
  if (table.last_large == nullptr || table.last_large_is_counted) return;
  const HeapBlock& block = *table.last_large;
  table.account.give(is_small(block.bytes), block.bytes,
                     block.requested.load(std::memory_order_relaxed));
  table.last_large_is_counted = true;
}

void take_large(Magazines& table, HeapBlock*& blocks) noexcept {
  if (table.last_large == nullptr) return;
  table.last_large->next_in_bin = blocks;
  blocks = std::exchange(table.last_large, nullptr);
}

}  // namespace

ThreadCache* ThreadCache::make() noexcept {
  if (owner.ended) return nullptr;
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
    DeviceHeap& heap = *table->pool->heap;
    heap.take_back([&](HeapBlock** blocks) {
      while (!enter()) std::this_thread::yield();
      empty(heap, blocks);
      leave();
    });
  }
  {
    const std::lock_guard lock(registry().mutex);
    std::erase(registry().caches, this);
  }
  for (Magazines* table : tables_) delete table;
}

Magazines* ThreadCache::find(const Pool& pool, std::uint64_t stream_id) noexcept {
  for (Magazines* table : tables_) {
    if (table->pool == &pool && table->stream_id == stream_id) return table;
  }
  return nullptr;
}

// The magazines for a block's stream; nullptr without memory for them, and for streams that gantry
// does not own: when the block leaves the magazine, such a stream may be gone.
Magazines* ThreadCache::find_or_open(const HeapBlock& block) noexcept {
  StreamBlocks& stream = *block.stream;
  Pool& pool = block.arena->owner();
  Magazines* table = find(pool, stream.clock.id());
  if (table == nullptr) {
    if (stream.clock.is_external()) return nullptr;
    table = open(pool, stream.clock);
    if (table == nullptr) return nullptr;
  }
  (table->streams[0] == nullptr ? table->streams[0] : table->streams[1]) = &stream;
  return table;
}

Magazines* ThreadCache::open(Pool& pool, const StreamClock& clock) noexcept {
  try {
    auto table = std::make_unique<Magazines>();
    table->pool = &pool;
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

HeapBlock* ThreadCache::settle(DeviceHeap& heap) noexcept {
  HeapBlock* blocks = nullptr;
  while (!enter()) std::this_thread::yield();
  for (Magazines* table : tables_) {
    if (table->pool->heap != &heap) continue;
    heap.add(*table->pool, table->account);
    if (HeapBlock* large = table->last_large) {
      if (!table->last_large_is_counted) heap.count_free(*large);
      take_large(*table, blocks);
    }
  }
  leave();
  return blocks;
}

// The caller is the owner, or has claimed the cache.
std::size_t ThreadCache::empty(DeviceHeap& heap, HeapBlock** blocks) noexcept {
  std::size_t kept = 0;
  for (Magazines* table : tables_) {
    if (table->pool->heap != &heap) continue;
    count_large(*table);
    heap.add(*table->pool, table->account);
    if (table->last_large != nullptr) kept += table->last_large->bytes;
    if (blocks != nullptr) take_large(*table, *blocks);
    for (Magazines::Magazine& magazine : table->by_grains) {
      for (std::size_t i = 0; i < magazine.count; ++i) {
        HeapBlock& block = *magazine.blocks[i];
        kept += block.bytes;
        if (blocks == nullptr) continue;
        kept_bytes_ -= block.bytes;
        block.next_in_bin = *blocks;
        *blocks = &block;
      }
      if (blocks != nullptr) magazine.count = 0;
    }
  }
  return kept;
}

void ThreadCache::claim() noexcept { claimed_.store(true, std::memory_order_seq_cst); }

std::size_t ThreadCache::visit_all(DeviceHeap& heap, HeapBlock** blocks) noexcept {
  const std::lock_guard lock(registry().mutex);
  for (ThreadCache* cache : registry().caches) cache->claim();
  if (!owner_fences_) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  std::size_t kept = 0;
  for (ThreadCache* cache : registry().caches) {
    while (cache->busy_.load(std::memory_order_acquire)) std::this_thread::yield();
    kept += cache->empty(heap, blocks);
    cache->unclaim();
  }
  return kept;
}

}  // namespace gantry::memory
