// Arithmetic of the statistics.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gantry/memory/stats.hpp>

namespace gantry::memory {

inline void increase(Stat& stat, std::size_t amount) {
  const auto value = static_cast<std::int64_t>(amount);
  stat.current += value;
  stat.peak = std::max(stat.peak, stat.current);
  stat.allocated += value;
}

inline void decrease(Stat& stat, std::size_t amount) {
  const auto value = static_cast<std::int64_t>(amount);
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

}  // namespace gantry::memory
