#include "memory/heap/device_heap.hpp"

#include <new>
#include <utility>

#include <gantry/core/log.hpp>

#include "memory/alignment.hpp"
#include "memory/heap/memory_pressure.hpp"
#include "memory/heap/poison.hpp"
#include "memory/source/segment_arena.hpp"
#include "memory/source/vmm_arena.hpp"

namespace gantry::memory {

void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept {
  const StreamClock& clock = block.stream->clock;
  record_trace(clock.device(), action, reinterpret_cast<std::uintptr_t>(block.data), block.bytes,
               clock.id(), call_site, block.requested.load(std::memory_order_relaxed));
}

DeviceHeap::DeviceHeap(int device, const AllocConfig& config, HeapBacking backing)
    : state_(device, config), backing_(backing) {
  if (config.max_split_bytes != AllocConfig{}.max_split_bytes) {
    state_.stats.max_split_size = static_cast<std::int64_t>(config.max_split_bytes);
  }
  common_pool_ = &make_pool({.use_on_oom = true});
}

// Free chunks can be mapped elsewhere, so an arena of small blocks would only leave more chunks
// partly used. Segments are released whole: there, one long-lived small block would hold back a
// large one.
void DeviceHeap::make_arenas(Pool& pool) {
  if (backing_ == HeapBacking::vmm) {
    pool.arenas.push_back(std::make_unique<VmmArena>(state_, pool));
  } else {
    pool.arenas.push_back(std::make_unique<SegmentArena>(state_, pool, false));
    pool.arenas.push_back(std::make_unique<SegmentArena>(state_, pool, true));
  }
  pool.large = pool.arenas.front().get();
  pool.small = pool.arenas.back().get();
}

[[gnu::flatten]] HeapBlock& DeviceHeap::allocate(std::size_t bytes, const Stream& stream,
                                                 Pool& pool, std::size_t alignment) {
  const std::size_t padding = alignment - kBlockGrain;
  const std::size_t size = block_bytes(add_saturated(bytes, padding));
  ThreadCache* cache = ThreadCache::current();
  HeapLock lock(state_.mutex);
  check_has_physical(pool);
  Arena& arena = is_small(size) ? *pool.small : *pool.large;
  StreamBlocks& own = arena.free.of(stream);
  // Loads while the last free is inserted.
  own.free.prefetch(size);
  if (cache != nullptr) flush_own(*cache);
  HeapBlock* found = take_free(arena, size, own);
  if (found == nullptr) found = &allocate_slow(lock, {pool, arena, size, own});
  std::size_t used = size;
  if (padding != 0) [[unlikely]] {
    found = &split_head(pool, *found, alignment);
    used = block_bytes(bytes) + padding_of(found->data, alignment);
  }
  HeapBlock& block = *found;
  split(pool, block, used);
  block.stream = &own;
  block.requested.store(bytes, std::memory_order_relaxed);
  block.use.store(BlockUse::live, std::memory_order_relaxed);
  ++pool.live_blocks;
  state_.account.take(is_small(block.bytes), block.bytes, bytes);
  if (block.bytes >= state_.config.max_split_bytes) increase(state_.stats.oversize_allocations, 1);
  if (deferred_[0].blocks + deferred_[1].blocks != 0) update_stats();
  const std::uint32_t site = recording_history() ? capture_call_site() : 0;
  block.call_site.store(site, std::memory_order_relaxed);
  if (recording_history()) {
    record_block(TraceAction::alloc, block, site);
  }
  lock.unlock();
  // Only the requested bytes: the rounding stays poisoned.
  unpoison(align_up(block.data, alignment), bytes, own.clock.native());
  return block;
}

// Adds the counts of the calling thread's magazines to the statistics and takes its large blocks.
void DeviceHeap::flush_own(ThreadCache& cache) noexcept {
  cache.for_each_of(*this, [this](Magazines& table) {
    add(table);
    if (Magazines::Magazine& large = table.by_grains[Magazines::kLarge]; large.count != 0) {
      large.clear();
      HeapBlock& block = *large.blocks[0];
      __builtin_prefetch(block.previous);
      block.arena->free.insert(block);
    }
  });
}

void DeviceHeap::deallocate(HeapBlock& block) noexcept {
  ThreadCache* cache = ThreadCache::current();
  Captures captures = captures_that_use(block);
  const HeapLock lock(state_.mutex);
  // The block may be joined with them: they load while the free is counted.
  __builtin_prefetch(block.previous);
  __builtin_prefetch(block.next);
  if (cache != nullptr) flush_own(*cache);
  if (begin_free(block)) finish_free(block, std::move(captures));
}

bool DeviceHeap::put_in_limbo(HeapBlock& block) noexcept {
  Captures captures = captures_that_use(block);
  const HeapLock lock(state_.mutex);
  if (!begin_free(block)) return false;
  DeferredFrees::freeze_uses(block);
  count_deferred(block, true);
  block.use.store(BlockUse::limbo, std::memory_order_relaxed);
  hold(block, std::move(captures));
  limbo_bytes_ += static_cast<std::int64_t>(block.bytes);
  return true;
}

void DeviceHeap::free_from_limbo(HeapBlock& block) noexcept {
  const HeapLock lock(state_.mutex);
  limbo_bytes_ -= static_cast<std::int64_t>(block.bytes);
  if (is_held(block)) {
    block.use.store(BlockUse::pending, std::memory_order_relaxed);
    return;
  }
  count_deferred(block, false);
  finish_deferred_free(block);
}

// Counts the free; false if the block was free already.
bool DeviceHeap::begin_free(HeapBlock& block) noexcept {
  if (block.use.load(std::memory_order_relaxed) != BlockUse::live) {
    logging::error("memory: a device block was freed twice; the second free is ignored");
    return false;
  }
  block.use.store(BlockUse::in_transition, std::memory_order_relaxed);
  --block.arena->owner().live_blocks;
  state_.account.give(is_small(block.bytes), block.bytes,
                      block.requested.load(std::memory_order_relaxed));
  if (block.bytes >= state_.config.max_split_bytes) decrease(state_.stats.oversize_allocations, 1);
  if (recording_history()) {
    const std::uint32_t site = capture_call_site(TraceAction::free_requested);
    record_block(TraceAction::free_requested, block,
                 site != 0 ? site : block.call_site.load(std::memory_order_relaxed));
  }
  return true;
}

// In the caller's free: the block's stream exists.
void DeviceHeap::finish_free(HeapBlock& block) noexcept {
  block.exported.store(false, std::memory_order_relaxed);
  if (!block.uses.empty()) DeferredFrees::freeze_uses(block);
  if (block.uses.empty() || !block.arena->owner().deferred.enqueue(block)) {
    insert_free(block);
  } else {
    count_deferred(block, true);
  }
}

// After the caller's free, which froze the uses. An external stream may be destroyed by now.
void DeviceHeap::finish_deferred_free(HeapBlock& block) noexcept {
  block.exported.store(false, std::memory_order_relaxed);
  if (block.arena->owner().deferred.enqueue(block)) {
    count_deferred(block, true);
  } else {
    insert_completed(block);
  }
}

namespace {

// Notes whether the clock's stream, which exists now, is captured, for the free to know.
void note_capture(const StreamClock& clock) noexcept {
  if (clock.native().handle == nullptr || !clock.may_submit()) return;
  try {
    static_cast<void>(clock.is_captured());
  } catch (...) {
    // The last answer stays.
  }
}

}  // namespace

void DeviceHeap::record_use(HeapBlock& block, const Stream& stream, bool until_free) {
  StreamClock& clock = StreamClock::of(stream);
  note_capture(clock);
  const HeapLock lock(state_.mutex);
  const BlockUse use = block.use.load(std::memory_order_relaxed);
  if (use != BlockUse::live && use != BlockUse::limbo) return;
  if (&clock == &block.stream->clock) return;
  const bool is_open = until_free && use == BlockUse::live;
  block.arena->owner().deferred.add_use(block, clock, is_open ? 0 : clock.record_sequence());
}

// `block`, if the arena's policy lets it serve the request; else it becomes free again.
HeapBlock* DeviceHeap::accept(Arena& arena, std::size_t bytes, HeapBlock* block) noexcept {
  if (block == nullptr) return nullptr;
  if (!arena.splits_freely() && !arena.may_serve(block->bytes, bytes)) {
    arena.free.insert(*block);
    return nullptr;
  }
  return block;
}

HeapBlock* DeviceHeap::take_free(Arena& arena, std::size_t bytes, StreamBlocks& stream) noexcept {
  return accept(arena, bytes, arena.free.take(bytes, stream));
}

void DeviceHeap::split(Pool& pool, HeapBlock& block, std::size_t bytes) noexcept {
  if (pool.options.no_split || block.bytes == bytes) return;
  Arena& arena = *block.arena;
  if (!arena.splits_freely() && !arena.may_split(block.bytes, bytes)) return;
  try {
    state_.slab.reserve(1);
  } catch (const std::bad_alloc&) {
    return;  // the whole block serves as well
  }
  HeapBlock& remainder = state_.slab.take();
  split_block(block, bytes, remainder);
  arena.free.insert_remainder(remainder);
}

// The part of the block from its first aligned address on; what is before that becomes free again.
// Where blocks are not split, and without memory for a descriptor, the whole block.
HeapBlock& DeviceHeap::split_head(Pool& pool, HeapBlock& block, std::size_t alignment) noexcept {
  Arena& arena = *block.arena;
  const std::size_t head = padding_of(block.data, alignment);
  if (head == 0 || pool.options.no_split) return block;
  if (!arena.splits_freely() && !arena.may_split(block.bytes, block.bytes - head)) return block;
  try {
    state_.slab.reserve(1);
  } catch (const std::bad_alloc&) {
    return block;
  }
  HeapBlock& aligned = state_.slab.take();
  split_block(block, head, aligned);
  aligned.use.store(BlockUse::in_transition, std::memory_order_relaxed);
  arena.free.insert(block);
  return aligned;
}

// Makes a block free for its own stream, which exists.
void DeviceHeap::insert_free(HeapBlock& block) noexcept {
  block.uses.clear();
  if (recording_history()) {
    record_block(TraceAction::free_completed, block,
                 block.call_site.load(std::memory_order_relaxed));
  }
  StreamClock& clock = block.stream->clock;
  const bool is_pinned = block.arena->owner().is_pinned();
  // Submitted before the sequence number is read, so work that waits for the number runs after it.
  // A graph writes to its blocks, free or not.
  if (!is_pinned) poison(block.data, block.bytes, clock.native());
  // Only the graph uses a block that is freed in its own capture.
  block.sequence = is_pinned && clock.may_be_captured() ? 0 : clock.record_sequence();
  block.arena->free.insert(block);
}

// Makes a block free whose deferred uses are complete. The free of a block of an external stream
// took its number already; the number of any other stream is taken now.
void DeviceHeap::insert_completed(HeapBlock& block) noexcept {
  block.uses.clear();
  if (recording_history()) {
    record_block(TraceAction::free_completed, block,
                 block.call_site.load(std::memory_order_relaxed));
  }
  if (StreamClock& clock = block.stream->clock; !clock.is_external()) {
    if (!block.arena->owner().is_pinned()) poison(block.data, block.bytes, clock.native());
    block.sequence = clock.record_sequence();
  }
  block.arena->free.insert(block);
}

// Inserts blocks of threads' magazines; their frees were counted and numbered.
void DeviceHeap::insert_cached(HeapBlock* blocks) noexcept {
  while (blocks != nullptr) {
    HeapBlock& block = *blocks;
    blocks = block.next_in_bin;
    block.arena->free.insert(block);
  }
}

void DeviceHeap::empty_cache() {
  (void)run_memory_pressure_callbacks(state_.device);
  HeapLock lock(state_.mutex);
  flush_magazines();
  promote_completed();  // blocks that graphs held may wait for streams now
  // After the first round, blocks that other streams used wait for their own stream.
  wait_for_all(lock);
  wait_for_all(lock);
  reclaim(lock, ~std::size_t{0}, nullptr);
  release_unmapped(lock, ~std::size_t{0});
}

void DeviceHeap::set_fraction(double fraction) {
  const HeapLock lock(state_.mutex);
  state_.fraction = fraction;
}

}  // namespace gantry::memory
