#include "memory/heap/device_heap.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <gantry/core/log.hpp>

#include "core/assert.hpp"
#include "device/platform/poison.hpp"
#include "memory/history/history.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {

DeviceHeap::DeviceHeap(int device, const AllocConfig& config, HeapBacking backing)
    : state_(device, config), pools_(*this, state_, backing) {
  if (config.max_split_bytes != AllocConfig{}.max_split_bytes) {
    state_.stats.max_split_size = static_cast<std::int64_t>(config.max_split_bytes);
  }
}

[[gnu::flatten]] HeapBlock& DeviceHeap::allocate(std::size_t bytes, const Stream& stream,
                                                 Pool& pool, std::size_t alignment) {
  const std::size_t size = block_bytes(add_saturated(bytes, alignment - kBlockGrain));
  ThreadCache* cache = ThreadCache::current();
  HeapLock lock(state_.mutex);
  pool.check_has_physical();
  Arena& arena = is_small(size) ? *pool.small : *pool.large;
  StreamBlocks& own = arena.free.of(stream);
  // Loads while the last free is inserted.
  own.free.prefetch(size);
  if (cache != nullptr) cache->flush_own(state_);
  const BlockRequest request{bytes, alignment, size, own};
  HeapBlock* found = arena.take(request, Search::own);
  if (found != nullptr) {
    found->stream = &own;
  } else {
    found = &recovery_.allocate(lock, arena, request);
  }
  HeapBlock& block = *found;
  GANTRY_ASSERT(&owner_of(block) == &pool, "a request gets a block of another pool");
  block.requested.store(bytes, std::memory_order_relaxed);
  block.change(BlockUse::in_transition, BlockUse::live);
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

void DeviceHeap::deallocate(HeapBlock& block) noexcept {
  ThreadCache* cache = ThreadCache::current();
  CaptureList captures = HeapFrees::captures_of(block);
  const HeapLock lock(state_.mutex);
  // The block may be joined with them: they load while the free is counted.
  __builtin_prefetch(block.previous);
  __builtin_prefetch(block.next);
  if (cache != nullptr) cache->flush_own(state_);
  if (begin_free(block)) frees_.free(block, std::move(captures));
}

// Counts the free; false if the block was free already.
bool DeviceHeap::begin_free(HeapBlock& block) noexcept {
  if (!block.is(BlockUse::live)) {
    logging::error("memory: a device block was freed twice; the second free is ignored");
    return false;
  }
  block.change(BlockUse::live, BlockUse::in_transition);
  --owner_of(block).live_blocks;
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

// The driver tells now, while the stream exists, whether it is captured. The clock keeps that for
// the free.
StreamClock& DeviceHeap::clock_of_user(const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  if (clock.native().handle == nullptr || !clock.may_submit()) return clock;
  try {
    static_cast<void>(clock.is_captured());
  } catch (...) {  // what it knew before stays
  }
  return clock;
}

// The graph of a capture may use the block, so a captured stream keeps it.
void DeviceHeap::set_stream(HeapBlock& block, const Stream& stream) {
  StreamClock& clock = clock_of_user(stream);
  {
    const HeapLock lock(state_.mutex);
    if (!block.is(BlockUse::live)) return;
    const StreamClock& former = block.stream->clock;
    if (!former.may_be_captured() || former.has_left_capture()) {
      block.stream = &block.arena->free.of(clock);
      std::erase_if(block.uses, [&clock](const StreamUse& use) { return use.clock == &clock; });
      return;
    }
  }
  record_use(block, stream, false);
}

void DeviceHeap::record_use(HeapBlock& block, const Stream& stream, bool until_free) {
  StreamClock& clock = clock_of_user(stream);
  const HeapLock lock(state_.mutex);
  const BlockUse use = block.use.load(std::memory_order_relaxed);
  if (use != BlockUse::live && use != BlockUse::limbo) return;
  if (&clock == &block.stream->clock) return;
  const bool is_open = until_free && use == BlockUse::live;
  owner_of(block).deferred.add_use(block, clock, is_open ? 0 : clock.record_sequence());
}

void DeviceHeap::empty_cache() {
  static_cast<void>(MemoryPressureCallbacks::instance().run(state_.device, Waiting::allowed));
  {
    const HeapLock lock(state_.mutex);
    recovery_.reset_bound();
  }
  release_after_waits();
}

void DeviceHeap::release_after_waits() {
  HeapLock lock(state_.mutex);
  ThreadCache::flush_blocks(state_);
  frees_.promote_completed();  // blocks that graphs held may wait for streams now
  // After the first round, blocks that other streams used wait for their own stream.
  frees_.wait_for_all(lock);
  frees_.wait_for_all(lock);
  pools_.release(lock);
}

bool DeviceHeap::release_unused() {
  HeapLock lock(state_.mutex);
  poll();
  pools_.release(lock);
  return has_incomplete();
}

DriverRelease DeviceHeap::release_for_driver() noexcept {
  if (HeapState::ChunkTransfer::is_in_progress()) return DriverRelease::none;
  // The calling thread may hold the lock. Other threads hold it for a short time.
  constexpr int kTries = 1000;
  HeapLock lock(state_.mutex, std::defer_lock);
  for (int i = 0; i < kTries && !lock.try_lock(); ++i) std::this_thread::yield();
  if (!lock.owns_lock()) return DriverRelease::none;
  const std::size_t before = state_.reserved();
  try {
    poll();
    pools_.release(lock);
  } catch (const std::exception& error) {
    logging::debug(std::string("releasing cached memory for the driver: ") + error.what());
  }
  if (state_.reserved() < before) return DriverRelease::some;
  return has_incomplete() ? DriverRelease::none_yet : DriverRelease::none;
}

// True if free memory waits for work of streams; the lock is held.
bool DeviceHeap::has_incomplete() const noexcept {
  return std::ranges::any_of(pools_, [](const auto& pool) { return pool->has_incomplete(); });
}

// Finds what is free by now; the lock is held.
void DeviceHeap::poll() noexcept {
  ThreadCache::flush_blocks(state_);
  frees_.poll();
}

void DeviceHeap::verify() {
  const HeapLock lock(state_.mutex);
  ThreadCache::flush_counts(state_);
  pools_.verify();
  frees_.verify();
  [[maybe_unused]] std::size_t mapped = 0;
  [[maybe_unused]] std::size_t in_segments = 0;
  for (const auto& pool : pools_) {
    for (const auto& arena : pool->arenas) {
      (pool->backing == HeapBacking::vmm ? mapped : in_segments) += arena->verify();
    }
  }
  GANTRY_ASSERT(state_.chunks.held() == mapped + state_.chunks.unmapped(),
                "the heap holds chunks that are neither mapped nor unmapped");
  GANTRY_ASSERT(state_.segment_bytes == in_segments, "the heap does not know its segments");
  GANTRY_ASSERT(state_.transfers.pending() == 0, "a transfer is pending after its call");
  std::int64_t active = 0;
  for (const SegmentInfo& segment : stats_.segments(pools_).segments) {
    [[maybe_unused]] std::uintptr_t end = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      GANTRY_ASSERT(block.address == end, "a segment has a gap between its blocks");
      end += block.bytes;
      if (block.state != BlockState::inactive) active += static_cast<std::int64_t>(block.bytes);
    }
  }
  GANTRY_ASSERT(active == stats_.collect(pools_).active_bytes.all.current,
                "the bytes of active blocks are not those of the statistics");
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
  GANTRY_ASSERT(pool.live_blocks >= 0, "more blocks of a pool are freed than were allocated");
  return pool.live_blocks;
}

}  // namespace gantry::memory
