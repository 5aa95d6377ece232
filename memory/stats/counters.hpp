// Arithmetic of the statistics, and their entries in maps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/stats.hpp>

#include "core/assert.hpp"

namespace gantry::memory {

inline void increase(Stat& stat, std::size_t amount) {
  const auto value = static_cast<std::int64_t>(amount);
  stat.current += value;
  stat.peak = std::max(stat.peak, stat.current);
  stat.allocated += value;
}

inline void decrease(Stat& stat, std::size_t amount) {
  const auto value = static_cast<std::int64_t>(amount);
  GANTRY_ASSERT(stat.current >= value, "a statistic falls below zero");
  stat.current -= value;
  stat.freed += value;
}

inline void increase(PoolStat& stat, bool small, std::size_t amount) {
  increase(stat.all, amount);
  increase(small ? stat.small_pool : stat.large_pool, amount);
}

inline void decrease(PoolStat& stat, bool small, std::size_t amount) {
  decrease(stat.all, amount);
  decrease(small ? stat.small_pool : stat.large_pool, amount);
}

inline void add(Stat& sum, const Stat& other) {
  sum.current += other.current;
  sum.peak += other.peak;
  sum.allocated += other.allocated;
  sum.freed += other.freed;
}

/// Counts a call that took `us` microseconds.
inline void add(HostTimes& times, std::int64_t us) {
  times.min = times.count == 0 ? us : std::min(times.min, us);
  times.max = std::max(times.max, us);
  times.total += us;
  ++times.count;
}

/// Adds the entries of one statistic to a map.
inline void add(std::map<std::string, std::int64_t>& map, const std::string& name,
                const Stat& stat) {
  map[name + ".current"] = stat.current;
  map[name + ".peak"] = stat.peak;
  map[name + ".allocated"] = stat.allocated;
  map[name + ".freed"] = stat.freed;
}

inline void reset_peak(Stat& stat) { stat.peak = stat.current; }

inline void reset_peak(PoolStat& stat) {
  reset_peak(stat.all);
  reset_peak(stat.small_pool);
  reset_peak(stat.large_pool);
}

inline void reset_peaks(Stats& stats) {
  for (PoolStat Stats::*const member :
       {&Stats::allocation, &Stats::segment, &Stats::active, &Stats::inactive_split,
        &Stats::allocated_bytes, &Stats::reserved_bytes, &Stats::active_bytes,
        &Stats::inactive_split_bytes, &Stats::requested_bytes}) {
    reset_peak(stats.*member);
  }
  reset_peak(stats.oversize_allocations);
  reset_peak(stats.oversize_segments);
}

inline constexpr Stat HostStats::*kHostStats[] = {
    &HostStats::allocations, &HostStats::allocated_bytes, &HostStats::active_requests,
    &HostStats::active_bytes};

inline void reset_peaks(HostStats& stats) {
  for (Stat HostStats::*const member : kHostStats) reset_peak(stats.*member);
}

/// Sets all that counts from the start to 0.
inline void reset_accumulated(HostStats& stats) {
  for (Stat HostStats::*const member : kHostStats) {
    (stats.*member).allocated = 0;
    (stats.*member).freed = 0;
  }
  stats.num_host_alloc = 0;
  stats.num_host_free = 0;
  stats.host_alloc_time = {};
  stats.host_free_time = {};
}

}  // namespace gantry::memory
