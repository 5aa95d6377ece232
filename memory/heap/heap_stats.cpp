#include "memory/heap/heap_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "memory/heap/thread_cache.hpp"
#include "memory/stats/counters.hpp"

namespace gantry::memory {
namespace {

void apply(Stat& stat, std::int64_t allocated, const StatsDelta::Level& level,
           std::int64_t StatsDelta::Amount::*member) {
  const std::int64_t more = level.now().*member;
  stat.peak = std::max(stat.peak, stat.current + level.peak.*member);
  stat.current += more;
  stat.allocated += allocated;
  stat.freed += allocated - more;
}

// `active` is what is allocated and what is deferred.
void derive(Stat& active, const Stat& allocated, std::int64_t deferred) {
  active.current = allocated.current + deferred;
  active.allocated = allocated.allocated;
  active.freed = active.allocated - active.current;
  active.peak = std::max({active.peak, active.current, allocated.peak});
}

}  // namespace

// Adds the heap's own delta to the statistics.
void HeapStats::apply_account() noexcept {
  StatsDelta& account = state_.account;
  const auto apply_one = [&account](PoolStat& stat, auto member) {
    const auto& [large, small] = account.allocated;
    apply(stat.large_pool, large.*member, account.by_size[0], member);
    apply(stat.small_pool, small.*member, account.by_size[1], member);
    apply(stat.all, large.*member + small.*member, account.all, member);
  };
  using Amount = StatsDelta::Amount;
  apply_one(state_.stats.allocation, &Amount::blocks);
  apply_one(state_.stats.allocated_bytes, &Amount::bytes);
  apply_one(requested_, &Amount::requested);
  account = {};
}

void HeapStats::update() noexcept {
  if (state_.account.is_used) apply_account();
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

void HeapStats::count_deferred(const HeapBlock& block, bool begins) noexcept {
  StatsDelta::Amount& side = deferred_[is_small(block.bytes) ? 1 : 0];
  const std::int64_t sign = begins ? 1 : -1;
  side.blocks += sign;
  side.bytes += sign * static_cast<std::int64_t>(block.bytes);
  side.requested +=
      sign * static_cast<std::int64_t>(block.requested.load(std::memory_order_relaxed));
  update();
}

std::size_t HeapStats::bytes_in_use() noexcept {
  update();
  return static_cast<std::size_t>(state_.stats.active_bytes.all.current);
}

std::size_t HeapStats::idle_private_bytes(const PoolSet& pools) {
  HeldSegments held;
  std::size_t bytes = 0;
  for (const auto& pool : pools) {
    for (const auto& arena : pool->arenas) {
      if (pool->is_pinned()) bytes += arena->captured_bytes();
      if (!pool->serves_others() && !pool->released) arena->describe(held);
    }
  }
  for (const SegmentInfo& segment : held.segments)
    bytes += segment.total_bytes - segment.active_bytes;
  return bytes;
}

Stats HeapStats::collect(const PoolSet& pools) {
  const std::size_t cached = ThreadCache::flush_counts(state_);
  update();
  Stats stats = state_.stats;
  // A heap has chunks or segments, and the segments are counted already.
  const Stat chunks = state_.chunks.reserved();
  add(stats.reserved_bytes.all, chunks);
  add(stats.reserved_bytes.large_pool, chunks);
  stats.num_device_alloc = state_.chunks.created() + state_.segments_made;
  stats.num_device_free = state_.chunks.released() + state_.segments_freed;
  stats.pending_bytes =
      stats.active_bytes.all.current - stats.allocated_bytes.all.current - limbo_bytes_;
  stats.limbo_bytes = limbo_bytes_;
  stats.cached_bytes = static_cast<std::int64_t>(cached);
  stats.unmapped_bytes = static_cast<std::int64_t>(state_.chunks.unmapped());
  stats.reclaimed_bytes = static_cast<std::int64_t>(state_.reclaimed_bytes);
  stats.num_stream_waits = stream_waits_;
  stats.largest_free = static_cast<std::int64_t>(pools.largest_free());
  for (const auto& pool : pools) {
    const bool is_used = pool->serves_captures ? pool->is_pinned() : !pool->destroyed;
    if (pool->id != 0 && is_used) ++stats.num_pools;
  }
  return stats;
}

void HeapStats::reset_peaks() {
  ThreadCache::flush_counts(state_);
  update();
  reset_peak(requested_);
  state_.chunks.reset_peak();
  gantry::memory::reset_peaks(state_.stats);
}

OomReport HeapStats::oom_report(const PoolSet& pools) {
  update();
  OomReport report;
  report.allocated = state_.stats.allocated_bytes.all.current;
  report.reserved = signed_bytes(state_.reserved());
  report.limbo = limbo_bytes_;
  report.pending = state_.stats.active_bytes.all.current - report.allocated - report.limbo;
  report.limit = signed_bytes(state_.limit());
  report.largest_free = signed_bytes(pools.largest_free());
  for (const auto& pool : pools) {
    for (const auto& [clock, bytes] : pool->deferred.waiting()) {
      report.pending_by_stream.emplace_back(clock->id(), signed_bytes(bytes));
    }
    for (const auto& arena : pool->arenas) {
      if (pool->serves_others() && !pool->is_pinned() && !pool->released) {
        report.stream_free += signed_bytes(arena->free.incomplete_bytes());
        continue;
      }
      HeldSegments held;
      arena->describe(held);
      for (const SegmentInfo& segment : held.segments) {
        if (pool->released) {
          report.released += signed_bytes(segment.allocated_bytes);
        } else {
          report.private_pools += signed_bytes(segment.total_bytes);
          report.private_free += signed_bytes(segment.total_bytes - segment.active_bytes);
        }
      }
    }
  }
  return report;
}

HeldSegments HeapStats::segments(const PoolSet& pools) const {
  HeldSegments held;
  held.device = state_.device;
  const ThreadCache::AllCachesPaused paused;
  for (const auto& pool : pools) {
    for (const auto& arena : pool->arenas) arena->describe(held);
  }
  held.time_ns = history_moment_ns();
  return held;
}

void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept {
  const StreamClock& clock = block.stream->clock;
  record_trace(clock.device(), action, reinterpret_cast<std::uintptr_t>(block.data), block.bytes,
               clock.id(), call_site, block.requested.load(std::memory_order_relaxed));
}

std::vector<std::pair<std::string, std::int64_t>> top_call_sites(HeldSegments held) {
  constexpr std::size_t kTop = 5;
  std::map<std::string, std::int64_t> by_site;
  held.look_up_frames();
  for (const SegmentInfo& segment : held.segments) {
    for (const BlockInfo& block : segment.blocks) {
      const Frame* const frame = block.frames.call_site();
      if (block.state == BlockState::inactive || frame == nullptr) continue;
      by_site[fmt::format("{} ({}:{})", frame->name, frame->filename, frame->line)] +=
          signed_bytes(block.bytes);
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> top(by_site.begin(), by_site.end());
  std::ranges::sort(top, std::ranges::greater(), [](const auto& site) { return site.second; });
  if (top.size() > kTop) top.resize(kTop);
  return top;
}

}  // namespace gantry::memory
