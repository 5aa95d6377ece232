#include "memory/heap/device_heap.hpp"

#include <new>
#include <utility>

#include <gantry/core/log.hpp>

#include "memory/heap/poison.hpp"
#include "memory/heap/shortage_hooks.hpp"
#include "memory/source/segment_arena.hpp"
#include "memory/source/vmm_arena.hpp"

namespace gantry::memory {

void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept {
  const StreamClock& clock = block.stream->clock;
  record_trace(clock.device(), action, reinterpret_cast<std::uintptr_t>(block.data), block.bytes,
               clock.id(), call_site, block.requested.load(std::memory_order_relaxed));
}

DeviceHeap::DeviceHeap(int device, const AllocConfig& config, HeapBacking backing)
    : core_(device, config), backing_(backing) {
  if (config.max_split_bytes != AllocConfig{}.max_split_bytes) {
    core_.stats.max_split_size = static_cast<std::int64_t>(config.max_split_bytes);
  }
  common_pool_ = &make_pool({.use_on_oom = true});
}

std::unique_ptr<Arena> DeviceHeap::make_arena(Pool& pool, bool small) {
  if (backing_ == HeapBacking::vmm) return std::make_unique<VmmArena>(core_, pool, small);
  return std::make_unique<SegmentArena>(core_, pool, small);
}

// Chunks can be mapped elsewhere when their neighbours are free, so keeping small blocks apart
// would only leave more chunks partly used. Segments go back whole: there it pays.
Arena& DeviceHeap::arena_for(Pool& pool, std::size_t bytes) const noexcept {
  return backing_ == HeapBacking::segments && is_small(bytes) ? *pool.small : *pool.large;
}

[[gnu::flatten]] HeapBlock& DeviceHeap::allocate(std::size_t bytes, const Stream& stream,
                                                 Pool& pool) {
  const std::size_t size = block_bytes(bytes);
  ThreadCache* cache = ThreadCache::mine();
  HeapLock lock(core_.mutex);
  check_is_not_parked(pool);
  Arena& arena = arena_for(pool, size);
  StreamBlocks& own = arena.free.of(stream);
  // On its way while the last free is settled.
  own.free.prefetch(size);
  if (cache != nullptr) settle_own(*cache);
  HeapBlock* found = take_free(arena, size, own);
  if (found == nullptr) found = &find_memory(lock, {pool, arena, size, own});
  HeapBlock& block = *found;
  cut(pool, block, size);
  block.stream = &own;
  block.requested.store(bytes, std::memory_order_relaxed);
  block.use.store(BlockUse::live, std::memory_order_relaxed);
  ++pool.live_blocks;
  core_.account.take(is_small(block.bytes), block.bytes, bytes);
  if (block.bytes >= core_.config.max_split_bytes) increase(core_.stats.oversize_allocations, 1);
  if (deferred_[0].blocks + deferred_[1].blocks != 0) count_up();
  const std::uint32_t site = recording_history() ? capture_call_site() : 0;
  block.call_site.store(site, std::memory_order_relaxed);
  if (recording_history()) {
    record_block(TraceAction::alloc, block, site);
  }
  lock.unlock();
  // Only what was asked for: the rounding stays forbidden.
  unpoison(block.data, bytes, own.clock.native());
  return block;
}

// Adds what the calling thread's magazines counted to the statistics and takes its large blocks.
void DeviceHeap::settle_own(ThreadCache& cache) noexcept {
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
  ThreadCache* cache = ThreadCache::mine();
  Captures captures = captures_that_use(block);
  const HeapLock lock(core_.mutex);
  // It may be joined with them: that memory is on its way while the free is counted.
  __builtin_prefetch(block.previous);
  __builtin_prefetch(block.next);
  if (cache != nullptr) settle_own(*cache);
  if (begin_free(block)) finish_free(block, std::move(captures));
}

bool DeviceHeap::put_in_limbo(HeapBlock& block) noexcept {
  Captures captures = captures_that_use(block);
  const HeapLock lock(core_.mutex);
  if (!begin_free(block)) return false;
  PendingBlocks::fix_marks(block);
  count_deferred(block, true);
  block.use.store(BlockUse::limbo, std::memory_order_relaxed);
  hold(block, std::move(captures));
  limbo_bytes_ += static_cast<std::int64_t>(block.bytes);
  return true;
}

void DeviceHeap::reclaim(HeapBlock& block) noexcept {
  const HeapLock lock(core_.mutex);
  limbo_bytes_ -= static_cast<std::int64_t>(block.bytes);
  if (is_held(block)) {
    block.use.store(BlockUse::pending, std::memory_order_relaxed);
    return;
  }
  count_deferred(block, false);
  finish_free(block, false);
}

// Counts the caller's part of a free; false if the block was free already.
bool DeviceHeap::begin_free(HeapBlock& block) noexcept {
  if (block.use.load(std::memory_order_relaxed) != BlockUse::live) {
    logging::error("a device block was freed twice; the second free is ignored");
    return false;
  }
  block.use.store(BlockUse::moving, std::memory_order_relaxed);
  --block.arena->owner().live_blocks;
  core_.account.give(is_small(block.bytes), block.bytes,
                     block.requested.load(std::memory_order_relaxed));
  if (block.bytes >= core_.config.max_split_bytes) decrease(core_.stats.oversize_allocations, 1);
  if (recording_history()) {
    const std::uint32_t site = capture_call_site(TraceAction::free_requested);
    record_block(TraceAction::free_requested, block,
                 site != 0 ? site : block.call_site.load(std::memory_order_relaxed));
  }
  return true;
}

// `now`: the caller frees it this moment; else its sequence numbers are fixed.
void DeviceHeap::finish_free(HeapBlock& block, bool now) noexcept {
  block.exported.store(false, std::memory_order_relaxed);
  if (!block.uses.empty() && now) PendingBlocks::fix_marks(block);
  if (block.uses.empty() || !block.arena->owner().pending.defer(block, now)) {
    release(block, now);
  } else {
    count_deferred(block, true);
  }
}

namespace {

// Has the free know that the clock's stream, which lives now, is captured.
void see_capture(const StreamClock& clock) noexcept {
  if (clock.native().handle == nullptr || !clock.may_submit()) return;
  try {
    static_cast<void>(clock.is_captured());
  } catch (...) {
    // It is as it was seen before.
  }
}

}  // namespace

void DeviceHeap::record_use(HeapBlock& block, const Stream& stream, bool until_free) {
  StreamClock& clock = StreamClock::of(stream);
  see_capture(clock);
  const HeapLock lock(core_.mutex);
  const BlockUse use = block.use.load(std::memory_order_relaxed);
  if (use != BlockUse::live && use != BlockUse::limbo) return;
  if (&clock == &block.stream->clock) return;
  const bool is_open = until_free && use == BlockUse::live;
  block.arena->owner().pending.note(block, clock, is_open ? 0 : clock.record_sequence());
}

// A free block for the request, if its arena lets it serve; else it stays free.
HeapBlock* DeviceHeap::accept(Arena& arena, std::size_t bytes, HeapBlock* block) noexcept {
  if (block == nullptr) return nullptr;
  if (!arena.cuts_freely() && !arena.may_serve(block->bytes, bytes)) {
    arena.free.insert(*block);
    return nullptr;
  }
  return block;
}

HeapBlock* DeviceHeap::take_free(Arena& arena, std::size_t bytes, StreamBlocks& stream) noexcept {
  return accept(arena, bytes, arena.free.take(bytes, stream));
}

void DeviceHeap::cut(Pool& pool, HeapBlock& block, std::size_t bytes) noexcept {
  if (pool.options.no_split || block.bytes == bytes) return;
  Arena& arena = *block.arena;
  if (!arena.cuts_freely() && !arena.may_cut(block.bytes, bytes)) return;
  try {
    core_.slab.reserve(1);
  } catch (const std::bad_alloc&) {
    return;  // the whole block serves as well
  }
  HeapBlock& rest = core_.slab.take();
  cut_block(block, bytes, rest);
  arena.free.insert_rest(rest);
}

// Makes a block free that no other stream uses any more. A stream that is not ours may be gone by
// now unless the caller frees the block this moment.
void DeviceHeap::release(HeapBlock& block, bool now) noexcept {
  block.uses.clear();
  if (recording_history()) {
    record_block(TraceAction::free_completed, block,
                 block.call_site.load(std::memory_order_relaxed));
  }
  StreamClock& clock = block.stream->clock;
  if (now || !clock.is_external()) {
    const bool is_pinned = block.arena->owner().is_pinned();
    // Submitted before the sequence number is read, so work that waits for the number runs after
    // it. A graph writes to its blocks, free or not.
    if (!is_pinned) poison(block.data, block.bytes, clock.native());
    // What is freed in its own capture is used by nothing but the graph.
    block.sequence = now && is_pinned && clock.may_be_captured() ? 0 : clock.record_sequence();
  }
  block.arena->free.insert(block);
}

// Blocks that come out of threads' caches; their frees were counted and marked.
void DeviceHeap::return_cached(HeapBlock* blocks) noexcept {
  while (blocks != nullptr) {
    HeapBlock& block = *blocks;
    blocks = block.next_in_bin;
    block.arena->free.insert(block);
  }
}

void DeviceHeap::empty_cache() {
  (void)run_shortage_hooks(core_.device);
  HeapLock lock(core_.mutex);
  flush_magazines();
  settle();  // what graphs held may wait for streams now
  // What other streams used is its own stream's afterwards, and waited for in the second round.
  wait_for_all(lock);
  wait_for_all(lock);
  harvest(lock, ~std::size_t{0}, nullptr);
  release_spare(lock, ~std::size_t{0});
}

void DeviceHeap::set_fraction(double fraction) {
  const HeapLock lock(core_.mutex);
  core_.fraction = fraction;
}

}  // namespace gantry::memory
