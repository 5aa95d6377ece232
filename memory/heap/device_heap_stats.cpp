#include <algorithm>

#include "memory/counters.hpp"
#include "memory/heap/device_heap.hpp"

namespace gantry::memory {

namespace {

void apply(Stat& stat, std::int64_t given, const UsageAccount::Level& level,
           std::int64_t UsageAccount::Amount::*member) {
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

void DeviceHeap::append(Pool& pool, UsageAccount& account) noexcept {
  pool.live_blocks += account.both.now().blocks;
  core_.account.append(account);
  account = {};
}

// The heap's own account enters the statistics.
void DeviceHeap::fold(UsageAccount& account) noexcept {
  const auto fold_one = [&account](PoolStat& stat, auto member) {
    const auto& [large, small] = account.given;
    apply(stat.large_pool, large.*member, account.sides[0], member);
    apply(stat.small_pool, small.*member, account.sides[1], member);
    apply(stat.all, large.*member + small.*member, account.both, member);
  };
  using Amount = UsageAccount::Amount;
  fold_one(core_.stats.allocation, &Amount::blocks);
  fold_one(core_.stats.allocated_bytes, &Amount::bytes);
  fold_one(requested_, &Amount::requested);
  account = {};
}

// Brings the statistics up to date with the heap's own account and with what is deferred.
void DeviceHeap::count_up() noexcept {
  if (core_.account.is_used) fold(core_.account);
  Stats& stats = core_.stats;
  const auto derive_all = [&](PoolStat& active, const PoolStat& from, auto member) {
    const std::int64_t large = deferred_[0].*member;
    const std::int64_t small = deferred_[1].*member;
    derive(active.large_pool, from.large_pool, large);
    derive(active.small_pool, from.small_pool, small);
    derive(active.all, from.all, large + small);
  };
  using Amount = UsageAccount::Amount;
  derive_all(stats.active, stats.allocation, &Amount::blocks);
  derive_all(stats.active_bytes, stats.allocated_bytes, &Amount::bytes);
  derive_all(stats.requested_bytes, requested_, &Amount::requested);
}

void DeviceHeap::count_deferred(const HeapBlock& block, bool begins) noexcept {
  UsageAccount::Amount& side = deferred_[is_small(block.bytes) ? 1 : 0];
  const std::int64_t sign = begins ? 1 : -1;
  side.blocks += sign;
  side.bytes += sign * static_cast<std::int64_t>(block.bytes);
  side.requested +=
      sign * static_cast<std::int64_t>(block.requested.load(std::memory_order_relaxed));
  count_up();
}

std::size_t DeviceHeap::largest_free() const noexcept {
  std::size_t largest = 0;
  for (const auto& pool : pools_) {
    if (pool->parked || pool->is_pinned()) continue;
    largest = std::max({largest, pool->small->free.largest(), pool->large->free.largest()});
  }
  return largest;
}

Stats DeviceHeap::stats() {
  const HeapLock lock(core_.mutex);
  const std::size_t cached = ThreadCache::visit_all(*this, nullptr);
  count_up();
  core_.refresh_reserved();
  Stats stats = core_.stats;
  stats.num_device_alloc = core_.chunks.created() + core_.segments_made;
  stats.num_device_free = core_.chunks.released() + core_.segments_freed;
  stats.pending_bytes =
      stats.active_bytes.all.current - stats.allocated_bytes.all.current - limbo_bytes_;
  stats.limbo_bytes = limbo_bytes_;
  stats.cached_bytes = static_cast<std::int64_t>(cached);
  stats.spare_bytes = static_cast<std::int64_t>(core_.chunks.spare());
  stats.harvested_bytes = static_cast<std::int64_t>(core_.harvested_bytes);
  stats.num_stream_waits = stream_waits_;
  stats.largest_free = static_cast<std::int64_t>(largest_free());
  for (const auto& pool : pools_) {
    const bool is_used = pool->serves_captures ? pool->is_pinned() : !pool->abandoned;
    if (pool->id != 0 && is_used) ++stats.num_pools;
  }
  return stats;
}

void DeviceHeap::reset_peak_stats() {
  const HeapLock lock(core_.mutex);
  ThreadCache::visit_all(*this, nullptr);
  count_up();
  core_.refresh_reserved();
  for (Stat* stat : {&requested_.all, &requested_.small_pool, &requested_.large_pool}) {
    reset_peak(*stat);
  }
  Stats& stats = core_.stats;
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
  held.device = core_.device;
  const HeapLock lock(core_.mutex);
  const ThreadCache::Standstill standstill;
  for (const auto& pool : pools_) {
    pool->small->describe(held);
    pool->large->describe(held);
  }
  held.time_ns = history_moment_ns();
  return held;
}

}  // namespace gantry::memory
