#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry::memory {

/// One counter: its value, its peak since the last reset, and all that was ever added and removed.
struct Stat {
  std::int64_t current = 0;    ///< value now
  std::int64_t peak = 0;       ///< largest value since the last reset
  std::int64_t allocated = 0;  ///< sum of all additions
  std::int64_t freed = 0;      ///< sum of all removals
};

/// A counter for all blocks, small ones (<= 1 MiB) and large ones.
struct PoolStat {
  Stat all;         ///< every block
  Stat small_pool;  ///< blocks up to 1 MiB
  Stat large_pool;  ///< larger blocks
};

/// Counters of one device's allocator. Byte counts unless the name says otherwise.
struct Stats {
  PoolStat allocation;                    ///< number of live blocks
  PoolStat segment;                       ///< number of driver allocations
  PoolStat active;                        ///< number of blocks live or waiting for a stream
  PoolStat inactive_split;                ///< number of free pieces of split segments
  PoolStat allocated_bytes;               ///< bytes of live blocks
  PoolStat reserved_bytes;                ///< bytes held from the driver
  PoolStat active_bytes;                  ///< bytes of blocks live or waiting for a stream
  PoolStat inactive_split_bytes;          ///< bytes of free pieces of split segments
  PoolStat requested_bytes;               ///< bytes that callers asked for
  Stat oversize_allocations;              ///< number of live blocks that are never split
  Stat oversize_segments;                 ///< number of their segments
  std::int64_t num_alloc_retries = 0;     ///< requests that first found too little memory
  std::int64_t num_ooms = 0;              ///< times that OutOfMemoryError was thrown
  std::int64_t max_split_size = -1;       ///< larger blocks are never split; -1: no limit
  std::int64_t num_sync_all_streams = 0;  ///< waits for all streams, to free memory
  std::int64_t num_device_alloc = 0;      ///< allocations from the driver
  std::int64_t num_device_free = 0;       ///< frees to the driver

  // Beyond torch's keys.
  std::int64_t pending_bytes = 0;     ///< freed, other streams still use it
  std::int64_t limbo_bytes = 0;       ///< freed, other processes still use it
  std::int64_t cached_bytes = 0;      ///< free, in the magazines of threads
  std::int64_t unmapped_bytes = 0;    ///< held from the driver without an address
  std::int64_t reclaimed_bytes = 0;   ///< taken from free blocks to serve elsewhere, ever
  std::int64_t largest_free = 0;      ///< bytes of the largest free block
  std::int64_t num_stream_waits = 0;  ///< waits inserted so that a stream could take a block
  std::int64_t num_pools = 0;         ///< private pools in use
};

/// Free and total memory of a device as the driver counts it, in bytes.
struct MemInfo {
  std::size_t free = 0;   ///< not in use by any process
  std::size_t total = 0;  ///< capacity
};

/// The counters of `device`. Thread safety: any thread.
[[nodiscard]] GANTRY_API Stats stats(Device device = Device::cuda());
/// The same under the keys of torch.cuda.memory_stats ("allocated_bytes.all.current", …).
[[nodiscard]] GANTRY_API std::map<std::string, std::int64_t> stats_map(
    Device device = Device::cuda());
/// A table for people.
[[nodiscard]] GANTRY_API std::string summary(Device device = Device::cuda());
/// Bytes of live blocks.
[[nodiscard]] GANTRY_API std::size_t allocated(Device device = Device::cuda());
/// Largest allocated() since the last reset_peak_stats.
[[nodiscard]] GANTRY_API std::size_t max_allocated(Device device = Device::cuda());
/// Bytes held from the driver.
[[nodiscard]] GANTRY_API std::size_t reserved(Device device = Device::cuda());
/// Largest reserved() since the last reset_peak_stats.
[[nodiscard]] GANTRY_API std::size_t max_reserved(Device device = Device::cuda());
/// Sets every peak to the current value.
GANTRY_API void reset_peak_stats(Device device = Device::cuda());
/// Asks the driver; creates a context on `device`.
[[nodiscard]] GANTRY_API MemInfo mem_get_info(Device device = Device::cuda());

}  // namespace gantry::memory
