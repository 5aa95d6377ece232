// How much memory an allocator holds for a program that uses little of it at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace gantry::memory {

// Note [Reserved memory]
// Let B be the most bytes that are in use at any request: the bytes of live blocks, of pending ones
// and of the request. Memory that is not in use may not fit a request, so an allocator holds more.
// Below the limit it would never release that memory, and a program of changing sizes could make it
// hold the whole device. So an allocator that holds 2 B looks for memory that it holds already
// before it takes more:
//   * backend vmm maps chunks of free blocks where they are needed;
//   * backend native and the page-locked allocator release segments without a live block. The
//     driver may wait for the devices then, so they do that only while the devices have no work;
//   * backend async trims the driver's pool.
// What cannot be moved or released comes on top: free memory within a chunk or segment that has a
// block in use, free memory that a graph uses, and that of private pools without use_on_oom.
// docs/explanation/allocator.md states what follows from this.

/// The most memory that was in use, and the bound that follows from it; see Note [Reserved memory].
///
/// Not thread-safe: the allocator's lock protects it.
class ReserveBound {
 public:
  /// Notes that `bytes` are in use, with the request at hand.
  void note_use(std::size_t bytes) noexcept { most_used_ = std::max(most_used_, bytes); }
  /// Begins anew.
  void reset() noexcept { most_used_ = 0; }
  /// Twice the most that was in use.
  [[nodiscard]] std::size_t bytes() const noexcept {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    return most_used_ > kMost / 2 ? kMost : 2 * most_used_;
  }
  /// Bytes of `reserved` above the bound.
  [[nodiscard]] std::size_t excess(std::size_t reserved) const noexcept {
    return reserved - std::min(reserved, bytes());
  }

 private:
  std::size_t most_used_ = 0;
};

}  // namespace gantry::memory
