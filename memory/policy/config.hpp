// GANTRY_ALLOC_CONF, parsed.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/policy/backend.hpp"

namespace gantry::memory {

/// How the caching allocator behaves.
struct AllocConfig {
  const Backend* backend = &kBackends.front();
  /// Larger blocks are never split, and smaller requests never take them. In bytes.
  std::size_t max_split_bytes = std::numeric_limits<std::size_t>::max();
  /// Fraction of the limit above which old cached segments are given back; 0: never.
  double gc_threshold = 0;
  /// Share of each device's memory that this process may hold.
  double fraction = 1;
  /// Whether pinned memory is mapped here and registered with the driver; none: where that is
  /// faster (Note [Getting page-locked memory]).
  std::optional<bool> pinned_register = std::nullopt;
  /// The most threads that fault in registered memory; 0: up to 16.
  int pinned_threads = 0;
  /// Size of the first pinned segment, in bytes.
  std::size_t pinned_reserve_bytes = 0;
  /// Keys of torch that were given and change nothing here.
  std::vector<std::string> without_effect = {};
};

/// Parses "key:value,…". The keys, and torch's spellings of them, are those of
/// docs/reference/allocator-configuration.md. Throws: InvalidArgument that names the key and the
/// expected value.
[[nodiscard]] AllocConfig parse_alloc_config(std::string_view text);

/// The configuration of this process: GANTRY_ALLOC_CONF as it was at the first call.
/// Throws: InvalidArgument, at every call, if the variable is malformed.
[[nodiscard]] const AllocConfig& alloc_config();

}  // namespace gantry::memory
