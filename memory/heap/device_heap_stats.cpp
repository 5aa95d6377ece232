#include <algorithm>

#include "memory/counters.hpp"
#include "memory/heap/device_heap.hpp"

namespace gantry::memory {

namespace {

void apply(Stat& stat, std::int64_t given, const StatsDelta::Level& level,
           std::int64_t StatsDelta::Amount::*member) {
  const std::int64_t more = level.now().*member;
  stat.peak = std::max(stat.peak, stat.current + level.most.*member);
  stat.current += more;
  stat.allocated += given;
  stat.freed += given - more;
}

// `active` is what is allocated and what is deferred.
void derive(Stat& active, const Stat& allocated, std::int64_t deferred) {
  active.current = allocated.current + deferred;
  active.allocated = allocated.allocated;
  active.freed = active.allocated - active.current;
  active.peak = std::max({active.peak, active.current, allocated.peak});
}

}  // namespace

void DeviceHeap::append(Pool& pool, StatsDelta& account) noexcept {
  pool.live_blocks += account.both.now().blocks;
  state_.account.append(account);
  account = {};
}

// Adds the heap's own delta to the statistics.
void DeviceHeap::apply_delta(StatsDelta& account) noexcept {
  const auto apply_one = [&account](PoolStat& stat, auto member) {
    const auto& [large, small] = account.given;
    apply(stat.large_pool, large.*member, account.sides[0], member);
    apply(stat.small_pool, small.*member, account.sides[1], member);
    apply(stat.all, large.*member + small.*member, account.both, member);
  };
  using Amount = StatsDelta::Amount;
  apply_one(state_.stats.allocation, &Amount::blocks);
  apply_one(state_.stats.allocated_bytes, &Amount::bytes);
  apply_one(requested_, &Amount::requested);
  account = {};
}

// Brings the statistics up to date with the heap's own delta and with deferred frees.
void DeviceHeap::update_stats() noexcept {
  if (state_.account.is_used) apply_delta(state_.account);
  Stats& stats = state_.stats;
  const auto derive_all = [&](PoolStat& active, const PoolStat& from, auto member) {
    const std::int64_t large = deferred_[0].*member;
    const std::int64_t small = deferred_[1].*member;
    derive(active.large_pool, from.large_pool, large);
    derive(active.small_pool, from.small_pool, small);
    derive(active.all, from.all, large + small);
  };
  using Amount = StatsDelta::Amount;
  derive_all(stats.active, stats.allocation, &Amount::blocks);
  derive_all(stats.active_bytes, stats.allocated_bytes, &Amount::bytes);
  derive_all(stats.requested_bytes, requested_, &Amount::requested);
}

void DeviceHeap::count_deferred(const HeapBlock& block, bool begins) noexcept {
  StatsDelta::Amount& side = deferred_[is_small(block.bytes) ? 1 : 0];
  const std::int64_t sign = begins ? 1 : -1;
  side.blocks += sign;
  side.bytes += sign * static_cast<std::int64_t>(block.bytes);
  side.requested +=
      sign * static_cast<std::int64_t>(block.requested.load(std::memory_order_relaxed));
  update_stats();
}

std::size_t DeviceHeap::largest_free() const noexcept {
  std::size_t largest = 0;
  for (const auto& pool : pools_) {
    if (pool->released || pool->is_pinned()) continue;
    for (const auto& arena : pool->arenas) largest = std::max(largest, arena->free.largest());
  }
  return largest;
}

Stats DeviceHeap::stats() {
  const HeapLock lock(state_.mutex);
  const std::size_t cached = ThreadCache::flush_all(*this, nullptr);
  update_stats();
  state_.refresh_reserved();
  Stats stats = state_.stats;
  stats.num_device_alloc = state_.chunks.created() + state_.segments_made;
  stats.num_device_free = state_.chunks.released() + state_.segments_freed;
  stats.pending_bytes =
      stats.active_bytes.all.current - stats.allocated_bytes.all.current - limbo_bytes_;
  stats.limbo_bytes = limbo_bytes_;
  stats.cached_bytes = static_cast<std::int64_t>(cached);
  stats.unmapped_bytes = static_cast<std::int64_t>(state_.chunks.unmapped());
  stats.reclaimed_bytes = static_cast<std::int64_t>(state_.reclaimed_bytes);
  stats.num_stream_waits = stream_waits_;
  stats.largest_free = static_cast<std::int64_t>(largest_free());
  for (const auto& pool : pools_) {
    const bool is_used = pool->serves_captures ? pool->is_pinned() : !pool->destroyed;
    if (pool->id != 0 && is_used) ++stats.num_pools;
  }
  return stats;
}

void DeviceHeap::reset_peak_stats() {
  const HeapLock lock(state_.mutex);
  ThreadCache::flush_all(*this, nullptr);
  update_stats();
  state_.refresh_reserved();
  for (Stat* stat : {&requested_.all, &requested_.small_pool, &requested_.large_pool}) {
    reset_peak(*stat);
  }
  Stats& stats = state_.stats;
  for (PoolStat* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                         &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                         &stats.inactive_split_bytes, &stats.requested_bytes}) {
    reset_peak(*stat);
  }
  reset_peak(stats.oversize_allocations);
  reset_peak(stats.oversize_segments);
}

// See Note [Where a trace ends].
HeldSegments DeviceHeap::segments() {
  HeldSegments held;
  held.device = state_.device;
  const HeapLock lock(state_.mutex);
  const ThreadCache::AllCachesPaused paused;
  for (const auto& pool : pools_) {
    for (const auto& arena : pool->arenas) arena->describe(held);
  }
  held.time_ns = history_moment_ns();
  return held;
}

}  // namespace gantry::memory
