// Allocations and frees that the statistics have not heard of yet.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gantry::memory {

/// Counts what blocks came and went, and the highest levels in between, in few operations: the
/// statistics have many more numbers, and are asked for rarely.
struct UsageAccount {
  struct Side {
    std::int64_t allocations = 0;
    std::int64_t frees = 0;
    std::int64_t bytes_out = 0;  ///< handed to callers
    std::int64_t bytes_in = 0;
    std::int64_t requested_out = 0;
    std::int64_t requested_in = 0;

    [[nodiscard]] std::int64_t blocks() const { return allocations - frees; }
    [[nodiscard]] std::int64_t bytes() const { return bytes_out - bytes_in; }
    [[nodiscard]] std::int64_t requested() const { return requested_out - requested_in; }
  };
  /// Highest surplus of what came over what went.
  struct Most {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;
    std::int64_t requested = 0;

    void raise(std::int64_t more_blocks, std::int64_t more_bytes, std::int64_t more_requested) {
      blocks = std::max(blocks, more_blocks);
      bytes = std::max(bytes, more_bytes);
      requested = std::max(requested, more_requested);
    }
  };

  std::array<Side, 2> sides;  ///< large blocks, small blocks
  std::array<Most, 2> mosts;  ///< of either
  Most most;                  ///< of both together
  bool is_used = false;

  void take(bool small, std::size_t bytes, std::size_t requested) noexcept {
    Side& side = sides[small ? 1 : 0];
    ++side.allocations;
    side.bytes_out += static_cast<std::int64_t>(bytes);
    side.requested_out += static_cast<std::int64_t>(requested);
    mosts[small ? 1 : 0].raise(side.blocks(), side.bytes(), side.requested());
    most.raise(sides[0].blocks() + sides[1].blocks(), sides[0].bytes() + sides[1].bytes(),
               sides[0].requested() + sides[1].requested());
    is_used = true;
  }
  void give(bool small, std::size_t bytes, std::size_t requested) noexcept {
    Side& side = sides[small ? 1 : 0];
    ++side.frees;
    side.bytes_in += static_cast<std::int64_t>(bytes);
    side.requested_in += static_cast<std::int64_t>(requested);
    is_used = true;
  }
  /// Counts what `later` counted, as if it had happened here after everything so far.
  void append(const UsageAccount& later) noexcept {
    const auto raise = [](Most& mine, const Most& its, auto... sides) {
      mine.raise((sides.blocks() + ...) + its.blocks, (sides.bytes() + ...) + its.bytes,
                 (sides.requested() + ...) + its.requested);
    };
    raise(most, later.most, sides[0], sides[1]);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      Side& mine = sides[i];
      const Side& its = later.sides[i];
      if (its.allocations + its.frees == 0) continue;
      raise(mosts[i], later.mosts[i], sides[i]);
      mine.allocations += its.allocations;
      mine.frees += its.frees;
      mine.bytes_out += its.bytes_out;
      mine.bytes_in += its.bytes_in;
      mine.requested_out += its.requested_out;
      mine.requested_in += its.requested_in;
    }
    is_used = is_used || later.is_used;
  }
};

}  // namespace gantry::memory
