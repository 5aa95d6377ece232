// Freed blocks that other streams still use.
#pragma once

#include <vector>

#include "memory/heap/heap_block.hpp"

namespace gantry::memory {

/// Every using stream has a queue of its own, so one that is late holds back only blocks that it
/// uses itself; a block with several users waits in one queue after the other.
///
/// Not thread-safe: the heap's lock protects it.
class PendingBlocks {
 public:
  /// Notes that `block` is used by `clock`'s stream up to `sequence`, 0: up to its free.
  /// Throws: std::bad_alloc.
  void note(HeapBlock& block, StreamClock& clock, std::uint64_t sequence);
  /// Decides the sequence numbers of a block that is freed now, of uses until then and, where the
  /// stream may be gone later, of its own.
  static void fix_marks(HeapBlock& block) noexcept;
  /// Takes a freed block, with its sequence numbers, if it has to wait; false if not. `now`: it was
  /// freed this moment, not earlier.
  bool defer(HeapBlock& block, bool now) noexcept;
  /// Calls `release(HeapBlock&)` for blocks that nobody uses any more, or only after whom their own
  /// stream runs anyway.
  template <class Release>
  void settle(Release&& release) noexcept {
    for (Queue& queue : queues_) {
      while (queue.oldest != nullptr && is_over(*queue.oldest)) {
        HeapBlock& block = pop(queue);
        block.uses.pop_back();
        if (!defer(block, false)) release(block);
      }
    }
  }
  /// Asks the streams that are waited for how far they are.
  void poll() noexcept;
  /// A use that is waited for; its clock is nullptr if there is none that the host can wait for.
  [[nodiscard]] StreamUse oldest() const noexcept;
  /// Adds the last use of every stream that is waited for.
  void list(std::vector<StreamUse>& uses) const;
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Bytes of the blocks that wait for `clock`'s stream, by clock.
  struct Waiting {
    const StreamClock* clock;
    std::size_t bytes;
  };
  [[nodiscard]] std::vector<Waiting> waiting() const;

 private:
  struct Queue {
    StreamClock* clock = nullptr;
    HeapBlock* oldest = nullptr;  ///< linked through next_in_bin
    HeapBlock* newest = nullptr;
  };

  [[nodiscard]] static bool is_over(const HeapBlock& block, bool now = false) noexcept;
  HeapBlock& pop(Queue& queue) noexcept;

  std::vector<Queue> queues_;  ///< one for each clock that was ever noted
  std::size_t count_ = 0;
};

}  // namespace gantry::memory
