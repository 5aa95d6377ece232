#include "memory/heap/device_heap.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <gantry/core/log.hpp>

#include "memory/alignment.hpp"
#include "memory/heap/memory_pressure.hpp"
#include "memory/heap/poison.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {

DeviceHeap::DeviceHeap(int device, const AllocConfig& config, HeapBacking backing)
    : state_(device, config), pools_(*this, state_, backing) {
  if (config.max_split_bytes != AllocConfig{}.max_split_bytes) {
    state_.stats.max_split_size = static_cast<std::int64_t>(config.max_split_bytes);
  }
}

[[gnu::flatten]] HeapBlock& DeviceHeap::allocate(std::size_t bytes, const Stream& stream,
                                                 Pool& pool, std::size_t alignment) {
  const std::size_t padding = alignment - kBlockGrain;
  const std::size_t size = block_bytes(add_saturated(bytes, padding));
  ThreadCache* cache = ThreadCache::current();
  HeapLock lock(state_.mutex);
  pool.check_has_physical();
  Arena& arena = is_small(size) ? *pool.small : *pool.large;
  StreamBlocks& own = arena.free.of(stream);
  // Loads while the last free is inserted.
  own.free.prefetch(size);
  if (cache != nullptr) flush_own(*cache);
  HeapBlock* found = arena.take(size, own);
  if (found == nullptr) found = &recovery_.allocate(lock, {pool, arena, size, own});
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
  state_.count_allocation(block, bytes);
  if (stats_.has_deferred()) stats_.update();
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
  cache.for_each_of(state_, [](Magazines& table) {
    table.flush_counts();
    if (Magazines::Magazine& large = table.by_grains[Magazines::kLarge]; large.count != 0) {
      large.clear();
      HeapBlock& block = *large.blocks[0];
      __builtin_prefetch(block.previous);
      block.arena->free.insert(block);
    }
  });
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

void DeviceHeap::deallocate(HeapBlock& block) noexcept {
  ThreadCache* cache = ThreadCache::current();
  CaptureList captures = HeapFrees::captures_of(block);
  const HeapLock lock(state_.mutex);
  // The block may be joined with them: they load while the free is counted.
  __builtin_prefetch(block.previous);
  __builtin_prefetch(block.next);
  if (cache != nullptr) flush_own(*cache);
  if (begin_free(block)) frees_.free(block, std::move(captures));
}

// Counts the free; false if the block was free already.
bool DeviceHeap::begin_free(HeapBlock& block) noexcept {
  if (block.use.load(std::memory_order_relaxed) != BlockUse::live) {
    logging::error("memory: a device block was freed twice; the second free is ignored");
    return false;
  }
  block.use.store(BlockUse::in_transition, std::memory_order_relaxed);
  --block.arena->owner().live_blocks;
  state_.count_free(block);
  if (recording_history()) {
    const std::uint32_t site = capture_call_site(TraceAction::free_requested);
    record_block(TraceAction::free_requested, block,
                 site != 0 ? site : block.call_site.load(std::memory_order_relaxed));
  }
  return true;
}

bool DeviceHeap::put_in_limbo(HeapBlock& block) noexcept {
  CaptureList captures = HeapFrees::captures_of(block);
  const HeapLock lock(state_.mutex);
  if (!begin_free(block)) return false;
  frees_.put_in_limbo(block, std::move(captures));
  return true;
}

void DeviceHeap::free_from_limbo(HeapBlock& block) noexcept {
  const HeapLock lock(state_.mutex);
  frees_.free_from_limbo(block);
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

void DeviceHeap::empty_cache() {
  static_cast<void>(run_memory_pressure_callbacks(state_.device));
  HeapLock lock(state_.mutex);
  ThreadCache::flush_blocks(state_);
  frees_.promote_completed();  // blocks that graphs held may wait for streams now
  // After the first round, blocks that other streams used wait for their own stream.
  frees_.wait_for_all(lock);
  frees_.wait_for_all(lock);
  pools_.reclaim(lock, ~std::size_t{0});
  state_.release_unmapped(lock, ~std::size_t{0});
}

bool DeviceHeap::release_unused() {
  HeapLock lock(state_.mutex);
  ThreadCache::flush_blocks(state_);
  frees_.poll();
  pools_.reclaim(lock, ~std::size_t{0});
  state_.release_unmapped(lock, ~std::size_t{0});
  return std::ranges::any_of(pools_, [](const auto& pool) { return pool->has_incomplete(); });
}

void DeviceHeap::report_out_of_memory(std::size_t bytes, std::string_view purpose) {
  HeapLock lock(state_.mutex);
  recovery_.report(lock, bytes, 0, purpose);
}

void DeviceHeap::set_fraction(double fraction) {
  const HeapLock lock(state_.mutex);
  state_.fraction = fraction;
}

Stats DeviceHeap::stats() {
  const HeapLock lock(state_.mutex);
  return stats_.collect(pools_);
}

void DeviceHeap::reset_peak_stats() {
  const HeapLock lock(state_.mutex);
  stats_.reset_peaks();
}

HeldSegments DeviceHeap::segments() {
  const HeapLock lock(state_.mutex);
  return stats_.segments(pools_);
}

Pool& DeviceHeap::make_pool(const MemPoolOptions& options) {
  const HeapLock lock(state_.mutex);
  if (pools_.has_destroyed_released()) frees_.poll();
  return pools_.make(options);
}

Pool& DeviceHeap::pool_of(const std::shared_ptr<const Capture>& capture) {
  const HeapLock lock(state_.mutex);
  if (Pool* known = pools_.find(capture)) return *known;
  frees_.poll();
  return pools_.assign(capture);
}

std::int64_t DeviceHeap::live_blocks(Pool& pool) {
  const HeapLock lock(state_.mutex);
  ThreadCache::flush_counts(state_);
  return pool.live_blocks;
}

bool DeviceHeap::has_physical(const Pool& pool) const {
  const HeapLock lock(state_.mutex);
  return !pool.released;
}

}  // namespace gantry::memory
