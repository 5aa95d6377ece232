// Allocations and frees that the statistics do not include yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/policy/size_policy.hpp"

namespace gantry::memory {

/// Counts of allocated and freed blocks with exact peaks, in few operations. The full statistics
/// have many more numbers and are read rarely. They are brought up to date when they are read.
struct StatsDelta {
  struct Amount {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;
    std::int64_t requested = 0;

    Amount& operator+=(const Amount& more) {
      blocks += more.blocks;
      bytes += more.bytes;
      requested += more.requested;
      return *this;
    }
    Amount& operator-=(const Amount& less) {
      blocks -= less.blocks;
      bytes -= less.bytes;
      requested -= less.requested;
      return *this;
    }
    friend Amount operator-(Amount a, const Amount& b) { return a -= b; }
    /// Below 0 if any of them is.
    [[nodiscard]] std::int64_t sign() const { return blocks | bytes | requested; }
  };
  /// The amount in use, which is the allocated amount less the freed one, and its peak. It is kept
  /// as its distance below the peak. A rise above the peak makes the distance negative, so one test
  /// of the sign covers several peaks.
  struct Level {
    Amount peak;      ///< at least 0
    Amount headroom;  ///< distance of the present level below the peak

    [[nodiscard]] Amount now() const { return peak - headroom; }
    void raise_peak() noexcept {
      const auto raise_one = [](std::int64_t& highest, std::int64_t& below) {
        if (below >= 0) return;
        highest -= below;
        below = 0;
      };
      raise_one(peak.blocks, headroom.blocks);
      raise_one(peak.bytes, headroom.bytes);
      raise_one(peak.requested, headroom.requested);
    }
  };

  std::array<Amount, 2> allocated;  ///< total of all allocations: large blocks, small blocks
  std::array<Level, 2> by_size;     ///< of large and of small blocks
  Level all;
  bool is_used = false;

  void count_allocation(bool small, std::size_t bytes, std::size_t requested) noexcept {
    const Amount amount = amount_of(bytes, requested);
    Level& side = by_size[index_of(small)];
    allocated[index_of(small)] += amount;
    side.headroom -= amount;
    all.headroom -= amount;
    if ((side.headroom.sign() | all.headroom.sign()) < 0) [[unlikely]] {
      side.raise_peak();
      all.raise_peak();
    }
    is_used = true;
  }
  void count_free(bool small, std::size_t bytes, std::size_t requested) noexcept {
    const Amount amount = amount_of(bytes, requested);
    by_size[index_of(small)].headroom += amount;
    all.headroom += amount;
    is_used = true;
  }
  /// Counts a free and an allocation of the same block in a row, which change no level.
  void count_reuse(bool small, std::size_t bytes, std::size_t requested) noexcept {
    Amount& sum = small ? allocated[1] : allocated[0];
    sum.blocks += 1;
    sum.bytes += static_cast<std::int64_t>(bytes);
    sum.requested += static_cast<std::int64_t>(requested);
    is_used = true;
  }
  /// Counts what `later` counted, as if it had happened here after everything so far.
  void append(const StatsDelta& later) noexcept {
    const auto append_one = [](Level& mine, const Level& its) {
      mine.headroom -= its.peak;
      mine.raise_peak();
      mine.headroom += its.headroom;
    };
    for (std::size_t side = 0; side < by_size.size(); ++side) {
      allocated[side] += later.allocated[side];
      append_one(by_size[side], later.by_size[side]);
    }
    append_one(all, later.all);
    is_used = is_used || later.is_used;
  }

 private:
  static std::size_t index_of(bool small) { return static_cast<std::size_t>(small); }
  static Amount amount_of(std::size_t bytes, std::size_t requested) {
    return {1, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(requested)};
  }
};

/// The last allocations and frees of a thread, in their order, until a StatsDelta counts them.
class StatsLog {
 public:
  /// A full log counts nothing more before make_room() or move_to().
  [[nodiscard]] bool is_full() const noexcept { return count_ == kEntries; }
  /// Moves the entries of a full log to `account`.
  void make_room(StatsDelta& account) noexcept {
    if (is_full()) [[unlikely]] {
      move_to(account);
    }
  }
  /// Logs an allocation. A block that was freed just before with the same sizes is counted as
  /// reused in `account`, and its free leaves the log.
  void count_allocation(std::size_t bytes, std::size_t requested, StatsDelta& account) noexcept {
    const Entry& last = entries_[count_];
    if (last.bytes == -static_cast<std::int64_t>(bytes) && last.requested == requested) {
      --count_;
      account.count_reuse(is_small(bytes), bytes, requested);
      return;
    }
    entries_[++count_] = {static_cast<std::int64_t>(bytes), requested};
  }
  void count_free(std::size_t bytes, std::size_t requested) noexcept {
    entries_[++count_] = {-static_cast<std::int64_t>(bytes), requested};
  }
  /// Moves all entries to `account`. Returns the change of the number of blocks.
  std::int64_t move_to(StatsDelta& account) noexcept {
    std::int64_t more = 0;
    for (std::size_t i = 1; i <= count_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.bytes > 0) {
        const auto bytes = static_cast<std::size_t>(entry.bytes);
        account.count_allocation(is_small(bytes), bytes, entry.requested);
        ++more;
      } else {
        const auto bytes = static_cast<std::size_t>(-entry.bytes);
        account.count_free(is_small(bytes), bytes, entry.requested);
        --more;
      }
    }
    count_ = 0;
    return more;
  }

 private:
  struct Entry {
    std::int64_t bytes = 0;  ///< below 0 for a free
    std::size_t requested = 0;
  };
  static constexpr std::size_t kEntries = 63;

  std::size_t count_ = 0;
  std::array<Entry, kEntries + 1> entries_;  ///< the first one stays empty
};

}  // namespace gantry::memory
