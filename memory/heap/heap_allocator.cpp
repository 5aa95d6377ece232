#include "memory/heap/heap_allocator.hpp"

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/log.hpp>

#include "core/observers.hpp"
#include "device/checked_device_index.hpp"
#include "device/platform.hpp"
#include "memory/blocks/poison.hpp"
#include "memory/policy/alignment.hpp"
#include "memory/trace/history.hpp"
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
  return block.use.load(std::memory_order_relaxed) == BlockUse::live &&
         !block.exported.load(std::memory_order_relaxed) && block.uses.empty();
}

// Puts a freed block into the thread's cache; false if it has to go to its heap.
bool put_into_cache(ThreadCache& cache, HeapBlock& block) noexcept {
  if (!is_used_by_one(block)) return false;
  return cache.put(block, [&block]() noexcept {
    const StreamClock& clock = block.stream->clock;
    poison(block.data, block.bytes, clock.native());
    if (!recording_history()) return;
    const std::uint32_t site = capture_call_site(TraceAction::free_requested);
    for (const TraceAction action : {TraceAction::free_requested, TraceAction::free_completed}) {
      record_block(action, block,
                   site != 0 ? site : block.call_site.load(std::memory_order_relaxed));
    }
  });
}

}  // namespace

void HeapAllocator::verify() {
  for (int device = 0; device < heaps_.size(); ++device) {
    if (DeviceHeap* heap = heaps_.find(device)) heap->verify();
  }
}

HeapAllocator::~HeapAllocator() {
  if (in_bad_fork()) return;
  for (int device = 0; device < heaps_.size(); ++device) {
    DeviceHeap* heap = heaps_.find(device);
    if (heap == nullptr) continue;
    try {
      retain_heap(*heap);
      heap->empty_cache();
    } catch (const std::exception& error) {
      logging::warn(std::string("memory: failed to release the memory of a destroyed allocator: ") +
                    error.what());
    }
  }
}

namespace {

// An allocator of a pool, counted in `closed_pools` until the pool's last segment is freed.
struct ClosedSource {
  ClosedSource(std::shared_ptr<Allocator> allocator, std::shared_ptr<std::atomic<int>> closed_pools)
      : allocator(std::move(allocator)), closed_pools(std::move(closed_pools)) {
    ++*this->closed_pools;
  }
  ~ClosedSource() { --*closed_pools; }
  ClosedSource(const ClosedSource&) = delete;
  ClosedSource& operator=(const ClosedSource&) = delete;

  const std::shared_ptr<Allocator> allocator;
  const std::shared_ptr<std::atomic<int>> closed_pools;
};

}  // namespace

Pool& HeapAllocator::make_pool(int device, const MemPoolOptions& options) {
  if (options.allocator == nullptr || options.allocator->is_peer_accessible()) {
    return heap(device).make_pool(options);
  }
  // The pool's handle of its allocator holds the count.
  MemPoolOptions counted = options;
  const auto source = std::make_shared<const ClosedSource>(options.allocator, closed_pools_);
  counted.allocator = {source, source->allocator.get()};
  return heap(device).make_pool(counted);
}

DeviceHeap& HeapAllocator::heap(int device) {
  return heaps_.get(device, [this](int index) {
    const bool vmm = config_.backend->maps_chunks && driver().supports_virtual_memory(index);
    return new DeviceHeap(index, config_, vmm ? HeapBacking::vmm : HeapBacking::segments);
  });
}

// Note [The direct way]
// Most allocations and frees are served by the thread's magazines, where every instruction counts.
// For these, allocate() and deallocate() make no call, so they save few registers. Everything else
// is left to functions that do the whole work in the general way.

[[gnu::flatten]] Block HeapAllocator::allocate(const Stream& stream, std::size_t bytes,
                                               std::size_t alignment) {
  // Only these streams can be captured.
  if (stream.native().handle != nullptr) return allocate_on_made(stream, bytes, alignment);
  return allocate_uncaptured(stream, bytes, alignment);
}

[[gnu::noinline, gnu::flatten]] Block HeapAllocator::allocate_on_made(const Stream& stream,
                                                                      std::size_t bytes,
                                                                      std::size_t alignment) {
  if (is_captured(stream.native())) [[unlikely]] {
    return allocate_captured(bytes, stream, alignment);
  }
  return allocate_uncaptured(stream, bytes, alignment);
}

[[gnu::always_inline]] inline Block HeapAllocator::allocate_uncaptured(const Stream& stream,
                                                                       std::size_t bytes,
                                                                       std::size_t alignment) {
  ThreadCache* const cache = ThreadCache::find_current();
  const NativeStream& native = stream.native();
  if (cache == nullptr || has_observer(kMemoryObservers) ||
      (alignment != kDefaultAlignment && !divides_grain(alignment, kBlockGrain))) [[unlikely]] {
    return allocate_generally(stream, bytes, alignment);
  }
  if (!cache->has_route(heaps_.find(native.device), stream.id())) [[unlikely]] {
    return allocate_generally(stream, bytes, alignment);
  }
  Magazines& table = cache->route();
  // 0 also for sizes that no block has.
  const std::size_t size = (bytes + (kBlockGrain - 1)) & ~(kBlockGrain - 1);
  if (size == 0 || table.pool->released.load(std::memory_order_relaxed)) [[unlikely]] {
    return allocate_generally(stream, bytes, alignment);
  }
  HeapBlock* found = nullptr;
  const auto outcome =
      cache->take_directly(table, size, bytes, found, [bytes](HeapBlock& taken) noexcept {
        taken.requested.store(bytes, std::memory_order_relaxed);
        taken.change(BlockUse::cached, BlockUse::live);
        taken.call_site.store(0, std::memory_order_relaxed);
      });
  if (outcome == ThreadCache::Outcome::hit) [[likely]] {
    unpoison(found->data, bytes, native);
    return {.data = found->data,
            .bytes = bytes,
            .device = Device::cuda(native.device),
            .allocator = this,
            .handle = found};
  }
  if (outcome == ThreadCache::Outcome::miss) return allocate_missed(*table.pool, bytes, stream);
  return allocate_generally(stream, bytes, alignment);
}

[[gnu::noinline]] Block HeapAllocator::allocate_missed(Pool& pool, std::size_t bytes,
                                                       const Stream& stream) {
  HeapBlock& made = pool.heap->allocate(bytes, stream, pool);
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::memory_allocated(made.data, made.bytes);
  }
  return {.data = made.data,
          .bytes = bytes,
          .device = Device::cuda(stream.native().device),
          .allocator = this,
          .handle = &made};
}

[[gnu::noinline]] Block HeapAllocator::allocate_generally(const Stream& stream, std::size_t bytes,
                                                          std::size_t alignment) {
  const int device = stream.native().device;
  Pool* const active = active_pool(device);
  Pool& pool = active != nullptr ? *active : heap(device).common_pool();
  if (ThreadCache* cache = ThreadCache::find_current()) cache->set_route(pool, stream.id());
  return allocate_in(pool, bytes, stream, alignment);
}

Block HeapAllocator::allocate_from(Pool& pool, const Stream& stream, std::size_t bytes,
                                   std::size_t alignment) {
  return is_captured(stream.native()) ? allocate_captured(bytes, stream, alignment)
                                      : allocate_in(pool, bytes, stream, alignment);
}

[[gnu::noinline]] Block HeapAllocator::allocate_captured(std::size_t bytes, const Stream& stream,
                                                         std::size_t alignment) {
  DeviceHeap& own = heap(stream.native().device);
  const std::shared_ptr<const Capture> capture = bytes == 0 ? nullptr : capture_of(stream);
  // An invalidated capture makes no graph.
  Pool& pool = capture == nullptr ? own.common_pool() : own.pool_of(capture);
  return allocate_in(pool, bytes, stream, alignment);
}

// Past the magazines: their blocks are aligned to kBlockGrain only.
[[gnu::noinline]] Block HeapAllocator::allocate_aligned(Pool& pool, std::size_t bytes,
                                                        const Stream& stream,
                                                        std::size_t alignment) {
  check_alignment(alignment);
  if (bytes == 0) return allocate_in(pool, bytes, stream, kBlockGrain);
  if (in_bad_fork()) static_cast<void>(driver());
  HeapBlock& made = pool.heap->allocate(bytes, stream, pool, alignment);
  if (sanitizer::is_on()) sanitizer::memory_allocated(made.data, made.bytes);
  return {.data = align_up(made.data, alignment),
          .bytes = bytes,
          .device = Device::cuda(stream.native().device),
          .allocator = this,
          .handle = &made};
}

[[gnu::flatten]] Block HeapAllocator::allocate_in(Pool& pool, std::size_t bytes,
                                                  const Stream& stream, std::size_t alignment) {
  if (!divides_grain(alignment, kBlockGrain)) [[unlikely]] {
    return allocate_aligned(pool, bytes, stream, alignment);
  }
  const NativeStream& native = stream.native();
  ThreadCache* cache = ThreadCache::current();
  // A hit makes no driver call, so it would not notice a bad fork; driver() throws.
  if (cache == nullptr && in_bad_fork()) static_cast<void>(driver());
  Block block{.bytes = bytes, .device = Device::cuda(native.device)};
  if (bytes == 0) return block;
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
  HeapBlock* found = cache != nullptr && !pool.released.load(std::memory_order_relaxed)
                         ? cache->take(pool, stream.id(), block_bytes(bytes), bytes, hand_out)
                         : nullptr;
  if (found != nullptr) {
    unpoison(found->data, bytes, native);
  } else {
    found = &pool.heap->allocate(bytes, stream, pool);
  }
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::memory_allocated(found->data, found->bytes);
  }
  block.data = found->data;
  block.allocator = this;
  block.handle = found;
  return block;
}

[[gnu::flatten]] void HeapAllocator::deallocate(Block& block) noexcept {
  ThreadCache* const cache = ThreadCache::find_current();
  if (cache == nullptr || block.handle == nullptr || has_observer(kMemoryObservers)) [[unlikely]] {
    return deallocate_generally(block);
  }
  HeapBlock& freed = block_of(block);
  // Loads for the join with its neighbours. (Other threads may change `previous` now.)
  __builtin_prefetch(freed.next);
  if (!is_used_by_one(freed)) return deallocate_generally(block);
  const auto outcome = cache->put_directly(freed, [&freed]() noexcept {
    poison(freed.data, freed.bytes, freed.stream->clock.native());
  });
  if (outcome == ThreadCache::Outcome::unknown) return deallocate_generally(block);
  block = {};
  if (outcome == ThreadCache::Outcome::miss) owner_of(freed).heap->deallocate(freed);
}

[[gnu::noinline]] void HeapAllocator::deallocate_generally(Block& block) noexcept {
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

void HeapAllocator::record_stream(const Block& block, const Stream& stream) {
  if (block.handle == nullptr || in_bad_fork()) return;
  owner_of(block_of(block)).heap->record_use(block_of(block), stream, true);
  if (sanitizer::is_on()) sanitizer::memory_recorded(block_of(block).data, stream, true);
}

void HeapAllocator::record_use(const Block& block, const Stream& stream) {
  if (block.handle == nullptr || in_bad_fork()) return;
  owner_of(block_of(block)).heap->record_use(block_of(block), stream, false);
  if (sanitizer::is_on()) sanitizer::memory_recorded(block_of(block).data, stream, false);
}

void HeapAllocator::empty_cache(Device device) {
  const int index = checked_device_index(device, "empty_cache");
  if (in_bad_fork()) return;
  if (DeviceHeap* made = heaps_.find(index)) made->empty_cache();
}

std::string HeapAllocator::name() const { return std::string(config_.backend->name); }

BlockExtent HeapAllocator::pin(const Block& block) {
  HeapBlock& pinned = block_of(block);
  const HeapLock lock = owner_of(pinned).heap->lock();
  if (pinned.use.load(std::memory_order_relaxed) != BlockUse::live) {
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
