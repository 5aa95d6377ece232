#include "memory/heap/pool_set.hpp"

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"

namespace gantry::memory {

bool Pool::is_idle() const noexcept {
  return live_blocks == 0 && deferred.empty() &&
         std::ranges::all_of(arenas, [](const auto& arena) { return arena->free.is_complete(); });
}

bool Pool::has_incomplete() const noexcept {
  return deferred.oldest().clock != nullptr || std::ranges::any_of(arenas, [](const auto& arena) {
           return arena->free.incomplete() != nullptr;
         });
}

void Pool::forget_capture() noexcept {
  if (!serves_captures) return;
  for (const auto& arena : arenas) arena->free.forget_capture();
}

void Pool::throw_without_physical() {
  throw InvalidArgument(
      "allocate: expected a pool with physical memory, but got one that released it");
}

void Pool::discard_unused() {
  std::size_t bytes = 0;
  for (const auto& arena : arenas) {
    arena->discard_unused();
    bytes += arena->released_bytes();
  }
  if (bytes == 0) released = false;
}

PoolSet::PoolSet(DeviceHeap& heap, HeapState& state, HeapBacking backing)
    : heap_(heap), state_(state), backing_(backing) {
  common_ = &make({.use_on_oom = true});
}

bool PoolSet::has_destroyed_released() const noexcept {
  return std::ranges::any_of(pools_, [](const auto& pool) {
    return pool->destroyed && !pool->serves_captures && pool->released;
  });
}

Pool& PoolSet::make(const MemPoolOptions& options) {
  const HeapBacking backing = options.allocator != nullptr ? HeapBacking::segments : backing_;
  for (const auto& pool : pools_) {
    if (!pool->destroyed || pool->serves_captures || pool->backing != backing) continue;
    if (pool->released) pool->discard_unused();
    if (pool->live_blocks != 0 || pool->released) continue;
    GANTRY_ASSERT(pool->capture == nullptr, "a program gets the pool of a capture");
    pool->destroyed = false;
    pool->options = options;
    pool->saved = {};
    return *pool;
  }
  Pool& pool = add(false, backing);
  pool.options = options;
  return pool;
}

Pool* PoolSet::find(const std::shared_ptr<const Capture>& capture) const noexcept {
  const auto found = std::ranges::find(
      pools_, capture, [](const auto& pool) -> const auto& { return pool->capture; });
  return found == pools_.end() ? nullptr : found->get();
}

Pool& PoolSet::assign(const std::shared_ptr<const Capture>& capture) {
  GANTRY_ASSERT(find(capture) == nullptr, "a capture gets a second pool");
  for (const auto& pool : pools_) {
    if (!pool->serves_captures || pool->is_pinned() || !pool->is_idle()) continue;
    pool->forget_capture();
    pool->capture = capture;
    return *pool;
  }
  Pool& made = add(true, backing_);
  made.capture = capture;
  return made;
}

Pool& PoolSet::add(bool serves_captures, HeapBacking backing) {
  auto pool = std::make_unique<Pool>(heap_, state_, serves_captures);
  pool->id = pools_.size();
  make_arenas(*pool, backing);
  pools_.push_back(std::move(pool));
  return *pools_.back();
}

// With chunks, one arena serves small and large blocks: a second one would leave more chunks partly
// used. A segment is released only as a whole, so a long-lived small block would keep a large
// segment. Small blocks have segments of their own.
void PoolSet::make_arenas(Pool& pool, HeapBacking backing) const {
  pool.backing = backing;
  if (backing == HeapBacking::vmm) {
    pool.arenas.push_back(make_vmm_arena(state_, pool));
  } else {
    pool.arenas.push_back(make_segment_arena(state_, pool, false));
    pool.arenas.push_back(make_segment_arena(state_, pool, true));
  }
  pool.large = pool.arenas.front().get();
  pool.small = pool.arenas.back().get();
}

std::size_t PoolSet::reclaim(HeapLock& lock, std::size_t bytes, const Pool* only) {
  std::size_t taken = 0;
  // By index: another thread may add a pool while an arena has released the lock.
  for (std::size_t i = 0; i < pools_.size() && taken < bytes; ++i) {
    Pool& pool = *pools_[i];
    const bool is_asked = only != nullptr ? only == &pool : pool.serves_others();
    if (pool.released || !is_asked) continue;
    if (!pool.is_pinned()) pool.forget_capture();
    for (const auto& arena : pool.arenas) {
      if (taken < bytes) taken += arena->reclaim(lock, bytes - taken);
    }
  }
  return taken;
}

bool PoolSet::has_releasable() const {
  return std::ranges::any_of(pools_, [](const auto& pool) {
    if (!pool->is_pinned()) pool->forget_capture();
    return !pool->released && pool->serves_others() &&
           std::ranges::any_of(pool->arenas,
                               [](const auto& arena) { return arena->has_releasable(); });
  });
}

void PoolSet::verify() const noexcept {
  for (std::size_t id = 0; id < pools_.size(); ++id) {
    const Pool& pool = *pools_[id];
    GANTRY_ASSERT(pool.id == id, "a pool has the number of another one");
    GANTRY_ASSERT(pool.capture == nullptr || (pool.serves_captures && find(pool.capture) == &pool),
                  "a capture has a pool that is not the only one for it");
    GANTRY_ASSERT(pool.released || pool.saved.blocks.empty(),
                  "a pool with its memory has a backup of it");
    [[maybe_unused]] std::int64_t live = 0;
    HeldSegments held;
    for (const auto& arena : pool.arenas) {
      GANTRY_ASSERT(&owner_of(*arena) == &pool, "an arena belongs to another pool");
      arena->describe(held);
    }
    for (const SegmentInfo& segment : held.segments) {
      live += std::ranges::count(segment.blocks, BlockState::active_allocated, &BlockInfo::state);
    }
    GANTRY_ASSERT(live == pool.live_blocks, "a pool does not know how many blocks are live");
    pool.deferred.verify();
  }
}

std::size_t PoolSet::largest_free() const noexcept {
  std::size_t largest = 0;
  for (const auto& pool : pools_) {
    if (pool->released || pool->is_pinned()) continue;
    for (const auto& arena : pool->arenas) largest = std::max(largest, arena->free.largest());
  }
  return largest;
}

}  // namespace gantry::memory
