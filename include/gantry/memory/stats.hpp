#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry::memory {

/// One counter: its value, its peak since the last reset, and the sums of all changes.
/// @since 0.1
struct Stat {
  std::int64_t current = 0;    ///< value now
  std::int64_t peak = 0;       ///< largest value since the last reset
  std::int64_t allocated = 0;  ///< sum of all additions
  std::int64_t freed = 0;      ///< sum of all removals
};

/// A counter for all blocks, and separately for small (<= 1 MiB) and large blocks.
/// @since 0.1
struct PoolStat {
  Stat all;         ///< every block
  Stat small_pool;  ///< blocks up to 1 MiB
  Stat large_pool;  ///< larger blocks
};

/// Counters of one device's allocator.
/// @since 0.1
struct Stats {
  PoolStat allocation;                 ///< number of live blocks
  PoolStat segment;                    ///< number of driver allocations
  PoolStat active;                     ///< number of blocks that are live or wait for a stream
  PoolStat inactive_split;             ///< number of free pieces of split segments
  PoolStat allocated_bytes;            ///< bytes of live blocks
  PoolStat reserved_bytes;             ///< bytes held from the driver
  PoolStat active_bytes;               ///< bytes of blocks that are live or wait for a stream
  PoolStat inactive_split_bytes;       ///< bytes of free pieces of split segments
  PoolStat requested_bytes;            ///< bytes that callers asked for
  Stat oversize_allocations;           ///< number of live blocks that are never split
  Stat oversize_segments;              ///< number of their segments
  std::int64_t num_alloc_retries = 0;  ///< number of requests that needed recovery
  std::int64_t num_ooms = 0;           ///< number of OutOfMemoryErrors
  std::int64_t max_split_size = -1;    ///< larger blocks are never split; -1: no limit
  std::int64_t num_sync_all_streams =
      0;                              ///< number of requests that waited on the host for streams
  std::int64_t num_device_alloc = 0;  ///< number of allocations from the driver
  std::int64_t num_device_free = 0;   ///< number of releases to the driver

  // Beyond torch's keys.
  std::int64_t pending_bytes = 0;   ///< bytes of freed blocks that other streams use
  std::int64_t limbo_bytes = 0;     ///< bytes of freed blocks that other processes use
  std::int64_t cached_bytes = 0;    ///< bytes of free blocks in the caches of threads
  std::int64_t unmapped_bytes = 0;  ///< bytes of physical memory that is not mapped
  std::int64_t reclaimed_bytes =
      0;  ///< sum of bytes unmapped from free blocks to serve other requests
  std::int64_t largest_free = 0;  ///< bytes of the largest free block
  std::int64_t num_stream_waits =
      0;                       ///< number of waits inserted so that a stream could take a block
  std::int64_t num_pools = 0;  ///< number of private pools in use
};

/// Free and total memory of a device as the driver counts it, in bytes.
/// @since 0.1
struct MemInfo {
  std::size_t free = 0;   ///< not in use by any process
  std::size_t total = 0;  ///< capacity
};

/// The counters of `device`. Thread safety: any thread.
/// Example: `const std::int64_t now = memory::stats("cuda:0").allocated_bytes.all.current;`
/// @since 0.1
[[nodiscard]] GANTRY_API Stats stats(Device device = Device::cuda());
/// The counters under the keys of torch.cuda.memory_stats ("allocated_bytes.all.current", …).
/// @since 0.1
[[nodiscard]] GANTRY_API std::map<std::string, std::int64_t> stats_map(
    Device device = Device::cuda());
/// The counters as a table of text.
/// Example: `std::cout << memory::summary("cuda:0");`
/// @since 0.1
[[nodiscard]] GANTRY_API std::string summary(Device device = Device::cuda());
/// Bytes of live blocks.
/// Example: `std::cout << memory::allocated("cuda:0") << " bytes";`
/// @since 0.1
[[nodiscard]] GANTRY_API std::size_t allocated(Device device = Device::cuda());
/// Largest value of allocated() since the last reset_peak_stats().
/// Example: `std::cout << memory::max_allocated("cuda:0") << " bytes at most";`
/// @since 0.1
[[nodiscard]] GANTRY_API std::size_t max_allocated(Device device = Device::cuda());
/// Bytes held from the driver.
/// @since 0.1
[[nodiscard]] GANTRY_API std::size_t reserved(Device device = Device::cuda());
/// Largest value of reserved() since the last reset_peak_stats().
/// @since 0.1
[[nodiscard]] GANTRY_API std::size_t max_reserved(Device device = Device::cuda());
/// Sets every peak to the current value.
/// @code
/// memory::reset_peak_stats("cuda:0");
/// (void)ones({1024}, "cuda:0").exp();
/// std::cout << memory::max_allocated("cuda:0");
/// @endcode
/// @since 0.1
GANTRY_API void reset_peak_stats(Device device = Device::cuda());
/// Sets the sums of changes (`allocated`, `freed`) and the counts of events (num_alloc_retries,
/// num_ooms, num_sync_all_streams, num_device_alloc, num_device_free, num_stream_waits,
/// reclaimed_bytes) to 0. Values and peaks stay. Thread safety: any thread.
/// @since 0.3
GANTRY_API void reset_accumulated_stats(Device device = Device::cuda());
/// Free and total memory of `device`, from the driver. Creates a context on the device.
/// Example: `std::cout << memory::mem_get_info("cuda:0").free;`
/// @since 0.1
[[nodiscard]] GANTRY_API MemInfo mem_get_info(Device device = Device::cuda());

}  // namespace gantry::memory
