#include "memory/heap/heap_allocator.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <gantry/core/log.hpp>

#include "core/observers.hpp"
#include "device/checked_device_index.hpp"
#include "device/platform/platform.hpp"
#include "device/platform/poison.hpp"
#include "memory/history/history.hpp"
#include "memory/policy/size_policy.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::memory {
namespace {

HeapBlock& block_of(const Block& block) { return *static_cast<HeapBlock*>(block.handle); }

// Keeps the heap of a destroyed allocator reachable: magazines of threads may still point to it.
void retain_heap(DeviceHeap& heap) {
  static auto& mutex = *new std::mutex();
  static auto& retained = *new std::vector<DeviceHeap*>();
  const std::lock_guard lock(mutex);
  retained.push_back(&heap);
}

// A block of a capture's pool serves that graph alone, which its replays order.
void sanitize_free(const HeapBlock& block) noexcept {
  if (owner_of(block).serves_captures) return;
  sanitizer::memory_freed(block.data, block.bytes, &block.stream->clock);
}

// True if a block is live, and no other stream or process uses it.
bool is_used_by_one(const HeapBlock& block) noexcept {
  return block.is(BlockUse::live) && !block.exported.load(std::memory_order_relaxed) &&
         block.uses.empty();
}

// Puts a freed block into the thread's cache; false if it has to go to its heap.
bool put_into_cache(ThreadCache& cache, HeapBlock& block) noexcept {
  Magazines* const table = is_used_by_one(block) ? cache.find_or_open(block) : nullptr;
  if (table == nullptr) return false;
  const auto outcome = cache.put(ThreadCache::Way::general, *table, block, [&block]() noexcept {
    const StreamClock& clock = block.stream->clock;
    poison(block.data, block.bytes, clock.native());
    if (!recording_history()) return;
    const std::uint32_t site = capture_call_site(TraceAction::free_requested);
    for (const TraceAction action : {TraceAction::free_requested, TraceAction::free_completed}) {
      record_block(action, block,
                   site != 0 ? site : block.call_site.load(std::memory_order_relaxed));
    }
  });
  return outcome == ThreadCache::Outcome::hit;
}

}  // namespace

HeapAllocator::~HeapAllocator() {
  if (in_bad_fork()) return;
  heaps_.for_each([](DeviceHeap& heap) {
    try {
      retain_heap(heap);
      heap.empty_cache();
    } catch (const std::exception& error) {
      logging::warn(std::string("memory: failed to release the memory of a "
                                "destroyed allocator: ") +
                    error.what());
    }
  });
}

Pool& HeapAllocator::make_pool(int device, const MemPoolOptions& options) {
  if (options.allocator == nullptr || options.allocator->is_peer_accessible()) {
    return heap(device).make_pool(options);
  }
  // Counted until the pool's last segment is freed: its handle of the allocator holds the count.
  MemPoolOptions counted = options;
  ++*closed_pools_;
  counted.allocator = {
      options.allocator.get(),
      [allocator = options.allocator, closed = closed_pools_](Allocator*) { --*closed; }};
  return heap(device).make_pool(counted);
}

DeviceHeap& HeapAllocator::heap(int device) {
  return heaps_.get(device, [this](int index) {
    const bool vmm = config_.backend->maps_chunks && driver().supports_virtual_memory(index);
    return new DeviceHeap(index, config_, vmm ? HeapBacking::vmm : HeapBacking::segments);
  });
}

// Note [The fast way]
// Most allocations and frees are served by the thread's magazines, where every instruction counts.
// For these, allocate() and deallocate() make no call, so they save few registers. Everything else
// is left to allocate_slow() and deallocate_slow(). A miss alone has a short way to the heap.

[[gnu::flatten]] Block HeapAllocator::allocate(const Stream& stream, std::size_t bytes,
                                               std::size_t alignment) {
  // Only a created stream can be captured.
  if (stream.native().handle != nullptr) return allocate_on_created(stream, bytes, alignment);
  return allocate_fast(stream, bytes, alignment);
}

[[gnu::noinline, gnu::flatten]] Block HeapAllocator::allocate_on_created(const Stream& stream,
                                                                         std::size_t bytes,
                                                                         std::size_t alignment) {
  if (is_captured(stream.native())) [[unlikely]] {
    return allocate_slow(&pool_of_capture(stream, bytes), stream, bytes, alignment);
  }
  return allocate_fast(stream, bytes, alignment);
}

Block HeapAllocator::allocate_from(Pool& pool, const Stream& stream, std::size_t bytes,
                                   std::size_t alignment) {
  Pool& used = is_captured(stream.native()) ? pool_of_capture(stream, bytes) : pool;
  return allocate_slow(&used, stream, bytes, alignment);
}

[[gnu::always_inline]] inline Block HeapAllocator::allocate_fast(const Stream& stream,
                                                                 std::size_t bytes,
                                                                 std::size_t alignment) {
  ThreadCache* const cache = ThreadCache::find_current();
  const NativeStream& native = stream.native();
  if (cache != nullptr && !has_observer(kMemoryObservers) &&
      (alignment == kDefaultAlignment || divides_grain(alignment, kBlockGrain)) &&
      cache->has_route(heaps_.find(native.device), stream.id())) [[likely]] {
    Magazines& table = cache->route();
    // 0 also for sizes that no block has.
    const std::size_t size = (bytes + (kBlockGrain - 1)) & ~(kBlockGrain - 1);
    if (size != 0 && !table.pool->released.load(std::memory_order_relaxed)) [[likely]] {
      HeapBlock* found = nullptr;
      const auto outcome = cache->take(ThreadCache::Way::direct, table, size, bytes, found,
                                       [bytes](HeapBlock& taken) noexcept {
                                         taken.requested.store(bytes, std::memory_order_relaxed);
                                         taken.change(BlockUse::cached, BlockUse::live);
                                         taken.call_site.store(0, std::memory_order_relaxed);
                                       });
      if (outcome == ThreadCache::Outcome::hit) [[likely]] {
        unpoison(found->data, bytes, native);
        return block_for(*found, found->data, bytes, native.device);
      }
      if (outcome == ThreadCache::Outcome::miss) return allocate_missed(*table.pool, stream, bytes);
    }
  }
  return allocate_slow(nullptr, stream, bytes, alignment);
}

[[gnu::noinline]] Block HeapAllocator::allocate_missed(Pool& pool, const Stream& stream,
                                                       std::size_t bytes) {
  HeapBlock& made = pool.heap->allocate(bytes, stream, pool);
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::memory_allocated(made.data, made.bytes);
  }
  return block_for(made, made.data, bytes, stream.native().device);
}

// The pool that the thread has chosen. Later requests of the thread find its magazines directly.
[[gnu::noinline]] Pool& HeapAllocator::pool_of_thread(const Stream& stream) {
  const int device = stream.native().device;
  Pool* const active = active_pool(device);
  Pool& pool = active != nullptr ? *active : heap(device).common_pool();
  if (ThreadCache* cache = ThreadCache::find_current()) cache->set_route(pool, stream.id());
  return pool;
}

[[gnu::noinline]] Pool& HeapAllocator::pool_of_capture(const Stream& stream, std::size_t bytes) {
  DeviceHeap& own = heap(stream.native().device);
  const std::shared_ptr<const Capture> capture = bytes == 0 ? nullptr : capture_of(stream);
  // An invalidated capture makes no graph.
  return capture == nullptr ? own.common_pool() : own.pool_of(capture);
}

// A block of `chosen`, nullptr: of the thread's pool. Magazines have no blocks
// of a larger alignment than kBlockGrain.
[[gnu::noinline, gnu::flatten]] Block HeapAllocator::allocate_slow(Pool* chosen,
                                                                   const Stream& stream,
                                                                   std::size_t bytes,
                                                                   std::size_t alignment) {
  const NativeStream& native = stream.native();
  Pool& pool = chosen != nullptr ? *chosen : pool_of_thread(stream);
  const bool divides = divides_grain(alignment, kBlockGrain);
  if (!divides) check_alignment(alignment);
  ThreadCache* const cache = ThreadCache::current();
  // A hit makes no driver call, so it would not notice a bad fork; driver() throws.
  if (cache == nullptr && in_bad_fork()) static_cast<void>(driver());
  if (bytes == 0) return {.device = Device::cuda(native.device)};
  const auto hand_out = [bytes](HeapBlock& taken) noexcept {
    taken.requested.store(bytes, std::memory_order_relaxed);
    taken.change(BlockUse::cached, BlockUse::live);
    std::uint32_t site = 0;
    if (recording_history()) [[unlikely]] {
      site = capture_call_site();
      record_block(TraceAction::alloc, taken, site);
    }
    taken.call_site.store(site, std::memory_order_relaxed);
  };
  HeapBlock* found = nullptr;
  if (cache != nullptr && divides && !pool.released.load(std::memory_order_relaxed)) {
    if (Magazines* const table = cache->find(pool, stream.id())) {
      static_cast<void>(cache->take(ThreadCache::Way::general, *table, block_bytes(bytes), bytes,
                                    found, hand_out));
    }
  }
  if (found != nullptr) {
    unpoison(found->data, bytes, native);
  } else {
    found = &pool.heap->allocate(bytes, stream, pool, std::max(alignment, kBlockGrain));
  }
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::memory_allocated(found->data, found->bytes);
  }
  return block_for(*found, align_up(found->data, alignment), bytes, native.device);
}

[[gnu::flatten]] void HeapAllocator::deallocate(Block& block) noexcept {
  ThreadCache* const cache = ThreadCache::find_current();
  if (cache == nullptr || block.handle == nullptr || has_observer(kMemoryObservers)) [[unlikely]] {
    return deallocate_slow(block);
  }
  HeapBlock& freed = block_of(block);
  // Loads for the join with its neighbours. (Other threads may change `previous` now.)
  __builtin_prefetch(freed.next);
  if (!is_used_by_one(freed)) return deallocate_slow(block);
  Magazines* const table = cache->last();
  if (table == nullptr || !table->serves(freed)) return deallocate_slow(block);
  const auto outcome = cache->put(ThreadCache::Way::direct, *table, freed, [&freed]() noexcept {
    poison(freed.data, freed.bytes, freed.stream->clock.native());
  });
  if (outcome == ThreadCache::Outcome::unknown) return deallocate_slow(block);
  block = {};
  if (outcome == ThreadCache::Outcome::miss) owner_of(freed).heap->deallocate(freed);
}

[[gnu::noinline]] void HeapAllocator::deallocate_slow(Block& block) noexcept {
  ThreadCache* cache = ThreadCache::current();
  if (block.handle == nullptr || (cache == nullptr && in_bad_fork())) {
    block = {};
    return;
  }
  HeapBlock& freed = block_of(block);
  if (sanitizer::is_on()) [[unlikely]] {
    sanitize_free(freed);
  }
  if (freed.exported.load(std::memory_order_relaxed)) {
    // In limbo first: another thread may free it as soon as it is deferred.
    Block copy = block;
    Pool& pool = owner_of(freed);
    if (pool.heap->put_in_limbo(freed) && !defer_exported_free(copy))
      pool.heap->free_from_limbo(freed);
  } else if (cache == nullptr || !put_into_cache(*cache, freed)) {
    owner_of(freed).heap->deallocate(freed);
  }
  block = {};
}

void HeapAllocator::record(const Block& block, const Stream& stream, bool until_free) {
  if (block.handle == nullptr || in_bad_fork()) return;
  HeapBlock& used = block_of(block);
  owner_of(used).heap->record_use(used, stream, until_free);
  if (sanitizer::is_on()) sanitizer::memory_recorded(used.data, stream, until_free);
}

void HeapAllocator::set_stream(const Block& block, const Stream& stream) {
  if (block.handle == nullptr || in_bad_fork()) return;
  HeapBlock& used = block_of(block);
  owner_of(used).heap->set_stream(used, stream);
  if (sanitizer::is_on()) sanitizer::memory_recorded(used.data, stream, false);
}

void HeapAllocator::empty_cache(Device device) {
  const int index = checked_device_index(device, "empty_cache");
  if (in_bad_fork()) return;
  if (DeviceHeap* made = heaps_.find(index)) made->empty_cache();
}

BlockExtent HeapAllocator::pin(const Block& block) {
  HeapBlock& pinned = block_of(block);
  const HeapLock lock = owner_of(pinned).heap->lock();
  if (!pinned.is(BlockUse::live)) {
    throw InvalidArgument("export_ipc: expected a live block, but got a freed one");
  }
  BlockExtent extent = pinned.arena->pin(pinned);
  extent.offset += static_cast<std::size_t>(static_cast<std::byte*>(block.data) - pinned.data);
  pinned.exported.store(true, std::memory_order_relaxed);
  return extent;
}

void HeapAllocator::unpin(const Block& block) noexcept {
  HeapBlock& pinned = block_of(block);
  const HeapLock lock = owner_of(pinned).heap->lock();
  pinned.arena->unpin(pinned);
}

void HeapAllocator::free_from_limbo(Block& block) noexcept {
  HeapBlock& freed = block_of(block);
  owner_of(freed).heap->free_from_limbo(freed);
  block = {};
}

}  // namespace gantry::memory
