// Allocations and frees that the statistics have not heard of yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/heap/size_policy.hpp"

namespace gantry::memory {

/// Counts what blocks came and went, and the highest levels in between, in few operations: the
/// statistics have many more numbers, and are asked for rarely.
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
  /// A surplus of what came over what went. It is kept as the distance below its peak, because
  /// that tells with one test that no peak rises, and they hardly ever do.
  struct Level {
    Amount most;  ///< highest surplus, 0 at least
    Amount room;  ///< what it lies below that

    [[nodiscard]] Amount now() const { return most - room; }
    void rise() noexcept {
      const auto rise_one = [](std::int64_t& peak, std::int64_t& below) {
        if (below >= 0) return;
        peak -= below;
        below = 0;
      };
      rise_one(most.blocks, room.blocks);
      rise_one(most.bytes, room.bytes);
      rise_one(most.requested, room.requested);
    }
  };

  std::array<Amount, 2> given;  ///< ever handed to callers: large blocks, small blocks
  std::array<Level, 2> sides;   ///< of either
  Level both;
  bool is_used = false;

  void take(bool small, std::size_t bytes, std::size_t requested) noexcept {
    const Amount amount = amount_of(bytes, requested);
    Level& side = sides[side_of(small)];
    given[side_of(small)] += amount;
    side.room -= amount;
    both.room -= amount;
    if ((side.room.sign() | both.room.sign()) < 0) [[unlikely]] {
      side.rise();
      both.rise();
    }
    is_used = true;
  }
  void give(bool small, std::size_t bytes, std::size_t requested) noexcept {
    const Amount amount = amount_of(bytes, requested);
    sides[side_of(small)].room += amount;
    both.room += amount;
    is_used = true;
  }
  /// Blocks that went and came back at once, which changes no level.
  void repeat(bool small, std::size_t bytes, std::size_t requested) noexcept {
    given[side_of(small)] += amount_of(bytes, requested);
    is_used = true;
  }
  /// Counts what `later` counted, as if it had happened here after everything so far.
  void append(const StatsDelta& later) noexcept {
    const auto append_one = [](Level& mine, const Level& its) {
      mine.room -= its.most;
      mine.rise();
      mine.room += its.room;
    };
    for (std::size_t side = 0; side < sides.size(); ++side) {
      given[side] += later.given[side];
      append_one(sides[side], later.sides[side]);
    }
    append_one(both, later.both);
    is_used = is_used || later.is_used;
  }

 private:
  static std::size_t side_of(bool small) { return static_cast<std::size_t>(small); }
  static Amount amount_of(std::size_t bytes, std::size_t requested) {
    return {1, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(requested)};
  }
};

/// The last allocations and frees of a thread, in their order, until they enter an account.
class StatsLog {
 public:
  /// A block was taken; one that was given back just before only counts as given once more.
  /// `overflow` gets what the log has no room for.
  void take(std::size_t bytes, std::size_t requested, StatsDelta& overflow) noexcept {
    const Entry& last = entries_[count_];
    if (last.bytes == -static_cast<std::int64_t>(bytes) && last.requested == requested) {
      --count_;
      overflow.repeat(is_small(bytes), bytes, requested);
      return;
    }
    note({static_cast<std::int64_t>(bytes), requested}, overflow);
  }
  void give(std::size_t bytes, std::size_t requested, StatsDelta& overflow) noexcept {
    note({-static_cast<std::int64_t>(bytes), requested}, overflow);
  }
  /// Moves everything to `account`; tells by how many the blocks became more.
  std::int64_t move_to(StatsDelta& account) noexcept {
    std::int64_t more = 0;
    for (std::size_t i = 1; i <= count_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.bytes > 0) {
        const auto bytes = static_cast<std::size_t>(entry.bytes);
        account.take(is_small(bytes), bytes, entry.requested);
        ++more;
      } else {
        const auto bytes = static_cast<std::size_t>(-entry.bytes);
        account.give(is_small(bytes), bytes, entry.requested);
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

  void note(Entry entry, StatsDelta& overflow) noexcept {
    if (count_ == kEntries) [[unlikely]] {
      move_to(overflow);
    }
    entries_[++count_] = entry;
  }

  std::size_t count_ = 0;
  std::array<Entry, kEntries + 1> entries_;  ///< the first one stays empty
};

}  // namespace gantry::memory
