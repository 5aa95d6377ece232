// Runs a sequence through an allocator and measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gantry/device/device.hpp>

#include "tools/replay/allocation_sequence.hpp"
#include "tools/replay/backend.hpp"
#include "tools/replay/counting_driver.hpp"

namespace gantry::replay {

/// How a sequence is replayed.
struct ReplayOptions {
  Device device = Device::cuda(0);
  int repeat = 5;                              ///< timed passes after the first one
  std::optional<std::uint64_t> limit_bytes{};  ///< the allocator may hold no more
  bool threads_as_logged = false;              ///< else one thread makes every call
  int samples = 400;                           ///< points of the lines of a chart, at most
  double max_seconds = 60;                     ///< a pass that lasts longer is given up
};

/// Memory at one moment of the first pass.
struct MemorySample {
  std::uint64_t op = 0;  ///< operations done
  std::uint64_t live_bytes = 0;
  std::uint64_t reserved_bytes = 0;

  friend bool operator==(const MemorySample&, const MemorySample&) = default;
};

/// The measurements of a replay. Bytes; nanoseconds of host time per operation.
struct ReplayResult {
  std::string backend;
  std::string error;             ///< why nothing was measured; empty if it was
  double first_ns = 0;           ///< the first pass, in which the allocator gets its memory
  double warm_ns = 0;            ///< the median of the others; 0 if there were none
  std::uint64_t operations = 0;  ///< of the sequence
  std::uint64_t done = 0;        ///< of these, in the shortest pass
  std::uint64_t peak_live = 0;   ///< what was asked for, at most at a time
  std::uint64_t peak_reserved = 0;
  std::uint64_t driver_calls_first = 0;
  std::uint64_t driver_calls_warm = 0;  ///< of the last pass
  std::uint64_t ooms = 0;               ///< in all passes
  std::optional<std::uint64_t> first_oom_op;
  std::uint64_t leaked_bytes = 0;      ///< not accounted as free when all was given back
  std::uint64_t held_after_empty = 0;  ///< still held from the driver after empty_cache
  std::vector<MemorySample> samples;

  /// Share of the reserved memory that was not live when most was: 1 − peak live / peak reserved.
  [[nodiscard]] double waste() const {
    return peak_reserved == 0
               ? 0.0
               : 1.0 - static_cast<double>(peak_live) / static_cast<double>(peak_reserved);
  }
  [[nodiscard]] bool completed() const { return error.empty() && ooms == 0 && done == operations; }

  friend bool operator==(const ReplayResult&, const ReplayResult&) = default;
};

/// After so many failed allocations a pass is given up.
inline constexpr std::uint64_t kMaxOoms = 100;

/// Replays `sequence` through `backend`. An allocation that fails is counted and its free skipped;
/// what the sequence leaves live is freed after each pass, outside the timing. `driver` counts.
[[nodiscard]] ReplayResult replay(const AllocationSequence& sequence, Backend& backend,
                                  CountingDriver& driver, const ReplayOptions& options);

}  // namespace gantry::replay
