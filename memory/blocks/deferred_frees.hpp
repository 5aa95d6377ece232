// Freed blocks that streams still use, or graphs may use.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "memory/blocks/heap_block.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {

// Note [Deferred frees]
// A freed block that other streams were recorded on waits until each of them has completed the work
// submitted before the free. There is one queue for each such stream. A block is in one queue at a
// time; when that stream's use is complete, the block moves to the queue of its next use. A queue
// is in the order of its stream's sequence numbers, so only its head is checked. A slow stream
// delays only the blocks that it uses. Most completions are known without a driver call. The free
// records an event behind each use that none covers. So a later request finds the end of the use
// when it comes, however much work the stream has been given since.
//
// A use ends in one of two ways. The using stream has completed it; or the block's own stream, on
// which the block is reused, is ordered after it. The second way needs a stream that exists:
//   * An external stream may be destroyed after the free. Only its order at the free counts.
//   * Host memory has no stream of its own. Its uses end by completion.
//   * The driver's pools free blocks on a stream of the pool. A use also ends when that stream has
//     waited for it.

/// Freed blocks that streams still use; see Note [Deferred frees].
///
/// Not thread-safe: the heap's lock protects it.
class DeferredFrees {
 public:
  /// Bytes of the blocks that wait for one stream.
  struct Waiting {
    const StreamClock* clock;
    std::size_t bytes;
  };

  DeferredFrees() = default;
  /// For blocks of a driver's pool. `freed_after` is the vector clock of the pool's stream.
  explicit DeferredFrees(const VectorClock& freed_after) : freed_after_(&freed_after) {}

  /// Adds a use of `block` by `clock`'s stream up to `sequence`, 0: up to its free. Makes the
  /// stream's queue, so that no later call allocates. Throws: std::bad_alloc.
  void add_use(HeapBlock& block, StreamClock& clock, std::uint64_t sequence);
  /// Takes the sequence numbers of uses that last until the free, which is in progress, and that of
  /// the block's own stream. Removes uses that the own stream is ordered after.
  static void freeze_uses(HeapBlock& block) noexcept;
  /// Makes sure that events cover the uses of a block, as far as that is possible now.
  static void cover_uses(const HeapBlock& block) noexcept;
  /// Adds a freed block with frozen uses to a queue; false if all its uses are complete.
  bool enqueue(HeapBlock& block) noexcept;
  /// Calls `free(HeapBlock&)` for the blocks whose uses are complete. True if the head of a queue
  /// changed.
  template <class Free>
  bool promote_completed(Free&& free) noexcept {
    bool any = false;
    // A block that moves on may enter a queue that was visited.
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (Queue& queue : queues_) {
        while (queue.oldest != nullptr && is_complete(*queue.oldest)) {
          HeapBlock& block = pop(queue);
          any = true;
          if (enqueue(block)) {
            has_moved = true;
          } else {
            free(block);
          }
        }
      }
    }
    return any;
  }

  /// Asks the driver how far the streams are. After promote_completed() there may be more to ask.
  void poll() noexcept;
  /// A pending use that the host can wait for; its clock is nullptr if there is none.
  [[nodiscard]] StreamUse oldest(HostWait wait = HostWait::anyhow) const noexcept;
  /// Adds the first pending use of every stream.
  void list_first(std::vector<StreamUse>& uses) const;
  /// Adds the last pending use of every stream.
  void list_last(std::vector<StreamUse>& uses) const;
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Asserts that each queue has the pending blocks of its stream in the order of their uses.
  void verify() const noexcept;
  /// Bytes of the blocks in each queue that has some.
  [[nodiscard]] std::vector<Waiting> waiting() const;

 private:
  struct Queue {
    StreamClock* clock = nullptr;
    HeapBlock* oldest = nullptr;  ///< linked through next_in_bin
    HeapBlock* newest = nullptr;
  };

  [[nodiscard]] bool is_complete(const HeapBlock& block) const noexcept;
  HeapBlock& pop(Queue& queue) noexcept;
  static void end_use(HeapBlock& block) noexcept;

  std::vector<Queue> queues_;  ///< one for each clock that was ever added
  std::size_t count_ = 0;
  const VectorClock* freed_after_ = nullptr;
};

/// The freed blocks of a heap whose addresses graphs may use. Each waits until the program cannot
/// run any of these graphs again; see Note [Captured addresses].
///
/// Not thread-safe: the heap's lock protects it.
class HeldBlocks {
 public:
  /// Adds a capture to those that may use the block. Throws: std::bad_alloc.
  static void add_capture(HeapBlock& block, std::shared_ptr<const Capture> capture);

  /// Holds a freed block. False, and nothing happened, if no graph may use it.
  [[nodiscard]] bool hold(HeapBlock& block) noexcept;
  /// Calls `free(HeapBlock&)` for the blocks that no graph may use any more.
  template <class Free>
  void release(Free&& free) noexcept {
    HeapBlock* list = std::exchange(first_, nullptr);
    while (list != nullptr) {
      HeapBlock& block = *std::exchange(list, list->next_in_bin);
      if (!hold(block)) free(block);
    }
  }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// Asserts that every block is a freed one, and may be used by a graph.
  void verify() const noexcept;

 private:
  HeapBlock* first_ = nullptr;  ///< linked through next_in_bin
};

}  // namespace gantry::memory
