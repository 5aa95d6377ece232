// The statistics of a heap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/arenas/heap_state.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/history/history.hpp"

namespace gantry::memory {

/// Counts deferred frees, and collects what a heap and its pools hold.
///
/// Call every member with the heap's lock held.
class HeapStats {
 public:
  explicit HeapStats(HeapState& state) : state_(state) {}
  HeapStats(const HeapStats&) = delete;
  HeapStats& operator=(const HeapStats&) = delete;

  /// True if freed blocks exist that streams or processes still use.
  [[nodiscard]] bool has_deferred() const noexcept {
    return deferred_[0].blocks + deferred_[1].blocks != 0;
  }
  /// Counts a free that is deferred from now on, or that ends to be.
  void count_deferred(const HeapBlock& block, bool begins) noexcept;
  void count_limbo(const HeapBlock& block, bool begins) noexcept {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    limbo_bytes_ += begins ? bytes : -bytes;
  }
  void count_stream_wait() noexcept { ++stream_waits_; }
  /// Brings the statistics up to date with the heap's own delta and with deferred frees.
  void update() noexcept;

  /// Bytes of live and deferred blocks.
  [[nodiscard]] std::size_t bytes_in_use() noexcept;
  /// Bytes of the free blocks of pools that serve no others.
  [[nodiscard]] static std::size_t idle_private_bytes(const PoolSet& pools);

  [[nodiscard]] Stats collect(const PoolSet& pools);
  void reset_peaks();
  /// The use of memory for the report of an OutOfMemoryError, without the driver's numbers.
  [[nodiscard]] OomReport oom_report(const PoolSet& pools);
  /// The segments of all pools with their blocks; see Note [Where a trace ends].
  [[nodiscard]] HeldSegments segments(const PoolSet& pools) const;

 private:
  void apply_account() noexcept;

  HeapState& state_;
  /// Freed blocks that streams or processes still use: large ones, small ones.
  std::array<StatsDelta::Amount, 2> deferred_{};
  PoolStat requested_;  ///< requested bytes of live blocks
  std::int64_t limbo_bytes_ = 0;
  std::int64_t stream_waits_ = 0;
};

/// As record_trace, for an event of a block.
void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept;

/// The call sites with the most bytes in use, and these bytes. Names them, which takes long.
[[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> top_call_sites(HeldSegments held);

}  // namespace gantry::memory
