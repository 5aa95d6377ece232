#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/memory/stats.hpp>

namespace gantry::memory {

/// Durations of one kind of call, in microseconds.
/// @since 0.1
struct HostTimes {
  std::int64_t total = 0;  ///< of all calls
  std::int64_t max = 0;    ///< of the longest call
  std::int64_t min = 0;    ///< 0 before the first call
  std::int64_t count = 0;  ///< number of calls

  /// Mean of all calls; 0 before the first one.
  [[nodiscard]] std::int64_t avg() const noexcept { return count == 0 ? 0 : total / count; }
};

/// Counters of the allocator of page-locked host memory, as in torch.cuda.host_memory_stats.
/// @since 0.1
struct HostStats {
  Stat allocations;                 ///< number of segments held from the system
  Stat allocated_bytes;             ///< bytes of these segments, used or not
  Stat active_requests;             ///< number of blocks that are live or wait for a stream
  Stat active_bytes;                ///< bytes of these blocks
  std::int64_t num_host_alloc = 0;  ///< number of segments ever allocated from the system
  std::int64_t num_host_free = 0;   ///< number of segments ever released to the system
  HostTimes host_alloc_time;        ///< of segment allocations, page-locking included
  HostTimes host_free_time;         ///< of segment releases
};

/// The counters of this process. Thread safety: any thread.
/// @since 0.1
[[nodiscard]] GANTRY_API HostStats host_memory_stats();
/// The counters under the keys of torch.cuda.host_memory_stats ("active_bytes.current",
/// "host_alloc_time.avg", …).
/// @since 0.1
[[nodiscard]] GANTRY_API std::map<std::string, std::int64_t> host_stats_map();
/// Sets every peak to the current value.
/// @since 0.1
GANTRY_API void reset_peak_host_stats();
/// Sets the sums of changes (`allocated`, `freed`), the counts of segments and the durations to 0.
/// Values and peaks stay. Thread safety: any thread.
/// @since 0.3
GANTRY_API void reset_accumulated_host_stats();

}  // namespace gantry::memory
