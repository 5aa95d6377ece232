#include <algorithm>

#include "memory/counters.hpp"
#include "memory/device_heap.hpp"

namespace gantry::memory {

Stats DeviceHeap::stats() {
  const HeapLock lock(core_.mutex);
  const std::size_t cached = ThreadCache::visit_all(*this, nullptr);
  core_.refresh_reserved();
  std::size_t largest = 0;
  for (const auto& pool : pools_) {
    largest = std::max({largest, pool->small->free.largest(), pool->large->free.largest()});
  }
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
  stats.largest_free = static_cast<std::int64_t>(largest);
  for (const auto& pool : pools_) {
    if (pool->id != 0 && !pool->abandoned) ++stats.num_pools;
  }
  return stats;
}

void DeviceHeap::reset_peak_stats() {
  const HeapLock lock(core_.mutex);
  ThreadCache::visit_all(*this, nullptr);
  core_.refresh_reserved();
  Stats& stats = core_.stats;
  for (PoolStat* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                         &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                         &stats.inactive_split_bytes, &stats.requested_bytes}) {
    reset_peak(*stat);
  }
  reset_peak(stats.oversize_allocations);
  reset_peak(stats.oversize_segments);
}

std::vector<SegmentInfo> DeviceHeap::segments() {
  const HeapLock lock(core_.mutex);
  std::vector<SegmentInfo> all;
  for (const auto& pool : pools_) {
    for (const Arena* arena : {pool->small.get(), pool->large.get()}) {
      for (SegmentInfo& segment : arena->describe()) all.push_back(std::move(segment));
    }
  }
  std::ranges::sort(all, {}, &SegmentInfo::address);
  return all;
}

}  // namespace gantry::memory
