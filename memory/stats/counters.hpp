// The statistics by name, and their arithmetic.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/stats.hpp>

#include "core/assert.hpp"

namespace gantry::memory {

struct NamedPoolStat {
  std::string_view name;
  PoolStat Stats::*member;
};
inline constexpr std::array kPoolStats{
    NamedPoolStat{"allocation", &Stats::allocation},
    NamedPoolStat{"segment", &Stats::segment},
    NamedPoolStat{"active", &Stats::active},
    NamedPoolStat{"inactive_split", &Stats::inactive_split},
    NamedPoolStat{"allocated_bytes", &Stats::allocated_bytes},
    NamedPoolStat{"reserved_bytes", &Stats::reserved_bytes},
    NamedPoolStat{"active_bytes", &Stats::active_bytes},
    NamedPoolStat{"inactive_split_bytes", &Stats::inactive_split_bytes},
    NamedPoolStat{"requested_bytes", &Stats::requested_bytes},
};

struct NamedPart {
  std::string_view name;
  Stat PoolStat::*member;
};
inline constexpr std::array kParts{NamedPart{"all", &PoolStat::all},
                                   NamedPart{"small_pool", &PoolStat::small_pool},
                                   NamedPart{"large_pool", &PoolStat::large_pool}};

struct NamedNumber {
  std::string_view name;
  std::int64_t Stats::*member;
  bool is_of_torch;  ///< torch has it, too
  bool accumulates;  ///< reset_accumulated_stats() sets it to 0

  [[nodiscard]] constexpr bool is_bytes() const { return !name.starts_with("num_"); }
};
/// All but max_split_size, which is a setting.
inline constexpr std::array kNumbers{
    NamedNumber{"num_alloc_retries", &Stats::num_alloc_retries, true, true},
    NamedNumber{"num_ooms", &Stats::num_ooms, true, true},
    NamedNumber{"num_sync_all_streams", &Stats::num_sync_all_streams, true, true},
    NamedNumber{"num_device_alloc", &Stats::num_device_alloc, true, true},
    NamedNumber{"num_device_free", &Stats::num_device_free, true, true},
    NamedNumber{"pending_bytes", &Stats::pending_bytes, false, false},
    NamedNumber{"limbo_bytes", &Stats::limbo_bytes, false, false},
    NamedNumber{"cached_bytes", &Stats::cached_bytes, false, false},
    NamedNumber{"unmapped_bytes", &Stats::unmapped_bytes, false, false},
    NamedNumber{"reclaimed_bytes", &Stats::reclaimed_bytes, false, true},
    NamedNumber{"largest_free", &Stats::largest_free, false, false},
    NamedNumber{"num_stream_waits", &Stats::num_stream_waits, false, true},
    NamedNumber{"num_pools", &Stats::num_pools, false, false},
};

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

/// Calls `visit(Stat&, const Stat&)` for each counter of `stats`, with the same one of `other`.
template <class Visit>
void for_each_stat(Stats& stats, const Stats& other, const Visit& visit) {
  for (const NamedPoolStat& entry : kPoolStats) {
    for (const NamedPart& part : kParts) {
      visit(stats.*entry.member.*part.member, other.*entry.member.*part.member);
    }
  }
  visit(stats.oversize_allocations, other.oversize_allocations);
  visit(stats.oversize_segments, other.oversize_segments);
}

/// Adds the statistics of another allocator of the device.
inline void add(Stats& sum, const Stats& other) {
  const std::int64_t largest = std::max(sum.largest_free, other.largest_free);
  for_each_stat(sum, other, [](Stat& stat, const Stat& more) { add(stat, more); });
  for (const NamedNumber& entry : kNumbers) sum.*entry.member += other.*entry.member;
  sum.largest_free = largest;
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
  for (const NamedPart& part : kParts) reset_peak(stat.*part.member);
}

inline void reset_peaks(Stats& stats) {
  for_each_stat(stats, stats, [](Stat& stat, const Stat& /*same*/) { reset_peak(stat); });
}

struct NamedHostStat {
  std::string_view name;
  Stat HostStats::*member;
};
inline constexpr std::array kHostStats{
    NamedHostStat{"allocations", &HostStats::allocations},
    NamedHostStat{"allocated_bytes", &HostStats::allocated_bytes},
    NamedHostStat{"active_requests", &HostStats::active_requests},
    NamedHostStat{"active_bytes", &HostStats::active_bytes},
};

inline void reset_peaks(HostStats& stats) {
  for (const NamedHostStat& entry : kHostStats) reset_peak(stats.*entry.member);
}

/// Sets all that counts from the start to 0.
inline void reset_accumulated(HostStats& stats) {
  for (const NamedHostStat& entry : kHostStats) {
    (stats.*entry.member).allocated = 0;
    (stats.*entry.member).freed = 0;
  }
  stats.num_host_alloc = 0;
  stats.num_host_free = 0;
  stats.host_alloc_time = {};
  stats.host_free_time = {};
}

}  // namespace gantry::memory
