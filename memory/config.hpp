// GANTRY_ALLOC_CONF, parsed.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace gantry::memory {

/// How the caching allocator behaves.
struct AllocConfig {
  /// "vmm": chunks mapped into address ranges, "native" where the device cannot; "native": driver
  /// allocations; "async": the driver's stream-ordered pools.
  std::string backend = "vmm";
  /// Larger blocks are never split, and smaller requests never take them. In bytes.
  std::size_t max_split_bytes = std::numeric_limits<std::size_t>::max();
  /// Fraction of the limit above which old cached segments are given back; 0: never.
  double gc_threshold = 0;
  /// Share of each device's memory that this process may hold.
  double fraction = 1;
};

/// Parses "key:value,…" with the keys backend, fraction, gc_threshold and max_split_size_mb.
/// Throws: InvalidArgument that names the key and the expected value.
[[nodiscard]] AllocConfig parse_alloc_config(std::string_view text);

/// The configuration of this process: GANTRY_ALLOC_CONF as it was at the first call.
/// Throws: InvalidArgument, at every call, if the variable is malformed.
[[nodiscard]] const AllocConfig& alloc_config();

}  // namespace gantry::memory
