// Freed blocks that streams still use, or graphs may use.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/assert.hpp"
#include "memory/blocks/free_blocks.hpp"
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
  void add_use(HeapBlock& block, StreamClock& clock, std::uint64_t sequence) {
    const auto is_same_clock = [&clock](const auto& entry) { return entry.clock == &clock; };
    if (std::ranges::none_of(queues_, is_same_clock)) queues_.push_back({.clock = &clock});
    const auto known = std::ranges::find_if(block.uses, is_same_clock);
    if (known == block.uses.end()) {
      block.uses.push_back({&clock, sequence});
    } else if (known->sequence != 0) {
      known->sequence = sequence == 0 ? 0 : std::max(known->sequence, sequence);
    }
  }
  /// Takes the sequence numbers of uses that last until the free, which is in progress, and that of
  /// the block's own stream. Removes uses that the own stream is ordered after.
  static void freeze_uses(HeapBlock& block) noexcept {
    for (StreamUse& use : block.uses) {
      if (use.sequence == 0) use.sequence = use.clock->record_sequence();
    }
    if (block.stream == nullptr) return;
    StreamClock& own = block.stream->clock;
    std::erase_if(block.uses, [&own](const StreamUse& use) {
      return own.happens_after(*use.clock, use.sequence);
    });
    block.sequence = own.record_sequence();
  }
  /// Makes sure that events cover the uses of a block, as far as that is possible now.
  static void cover_uses(const HeapBlock& block) noexcept {
    for (const StreamUse& use : block.uses) use.clock->cover(use.sequence);
  }
  /// Adds a freed block with frozen uses to a queue; false if all its uses are complete.
  bool enqueue(HeapBlock& block) noexcept {
    while (!block.uses.empty() && is_complete(block)) end_use(block);
    if (block.uses.empty()) return false;
    block.change({BlockUse::live, BlockUse::in_transition, BlockUse::pending, BlockUse::limbo},
                 BlockUse::pending);
    const auto waiting = std::ranges::find(queues_, block.uses.back().clock, &Queue::clock);
    GANTRY_ASSERT(waiting != queues_.end(), "a block waits for a stream that has no queue");
    Queue& queue = *waiting;
    const std::uint64_t sequence = block.uses.back().sequence;
    GANTRY_ASSERT(sequence != 0, "a block waits for a use that has no end");
    HeapBlock** link = &queue.oldest;
    if (queue.newest != nullptr && queue.newest->uses.back().sequence <= sequence) {
      link = &queue.newest->next_in_bin;
    } else {
      while (*link != nullptr && (*link)->uses.back().sequence <= sequence) {
        link = &(*link)->next_in_bin;
      }
    }
    block.next_in_bin = std::exchange(*link, &block);
    if (block.next_in_bin == nullptr) queue.newest = &block;
    ++count_;
    return true;
  }
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
  void poll() noexcept {
    for (const Queue& queue : queues_) {
      if (queue.oldest != nullptr) queue.clock->poll(queue.oldest->uses.back().sequence);
    }
  }
  /// A pending use that the host can wait for; its clock is nullptr if there is none.
  [[nodiscard]] StreamUse oldest(HostWait wait = HostWait::anyhow) const noexcept {
    for (const Queue& queue : queues_) {
      if (queue.oldest == nullptr) continue;
      const StreamUse use = queue.oldest->uses.back();
      if (use.clock->can_wait_for(use.sequence, wait)) return use;
    }
    return {};
  }
  /// Adds the first pending use of every stream.
  void list_first(std::vector<StreamUse>& uses) const {
    for (const Queue& queue : queues_) {
      if (queue.oldest != nullptr) uses.push_back(queue.oldest->uses.back());
    }
  }
  /// Adds the last pending use of every stream.
  void list_last(std::vector<StreamUse>& uses) const {
    const std::size_t before = uses.size();
    for (const Queue& queue : queues_) {
      for (const HeapBlock* block = queue.oldest; block != nullptr; block = block->next_in_bin) {
        for (const StreamUse& use : block->uses) {
          const auto known =
              std::find_if(uses.begin() + static_cast<std::ptrdiff_t>(before), uses.end(),
                           [&use](const StreamUse& listed) { return listed.clock == use.clock; });
          if (known == uses.end()) {
            uses.push_back(use);
          } else {
            known->sequence = std::max(known->sequence, use.sequence);
          }
        }
      }
    }
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Asserts that each queue has the pending blocks of its stream in the order of their uses.
  void verify() const noexcept {
    std::size_t count = 0;
    for (const Queue& queue : queues_) {
      const HeapBlock* last = nullptr;
      for (const HeapBlock* block = queue.oldest; block != nullptr; block = block->next_in_bin) {
        GANTRY_ASSERT(block->is(BlockUse::pending),
                      "a block that waits for a stream is not pending");
        GANTRY_ASSERT(!block->uses.empty() && block->uses.back().clock == queue.clock,
                      "a pending block waits in the queue of another stream");
        GANTRY_ASSERT(last == nullptr || last->uses.back().sequence <= block->uses.back().sequence,
                      "a pending block waits behind one whose use ends later");
        last = block;
        ++count;
      }
      GANTRY_ASSERT(queue.newest == last, "a queue does not know its last block");
    }
    GANTRY_ASSERT(count == count_, "the number of pending blocks is wrong");
  }
  /// Bytes of the blocks in each queue that has some.
  [[nodiscard]] std::vector<Waiting> waiting() const {
    std::vector<Waiting> waiting;
    for (const Queue& queue : queues_) {
      std::size_t bytes = 0;
      for (const HeapBlock* block = queue.oldest; block != nullptr; block = block->next_in_bin) {
        bytes += block->bytes;
      }
      if (bytes > 0) waiting.push_back({queue.clock, bytes});
    }
    return waiting;
  }

 private:
  struct Queue {
    StreamClock* clock = nullptr;
    HeapBlock* oldest = nullptr;  ///< linked through next_in_bin
    HeapBlock* newest = nullptr;
  };

  [[nodiscard]] bool is_complete(const HeapBlock& block) const noexcept {
    const StreamUse& use = block.uses.back();
    if (block.stream == nullptr || block.stream->clock.is_external()) {
      return use.sequence <= use.clock->completed() ||
             (freed_after_ != nullptr && use.sequence <= freed_after_->get(use.clock->slot()));
    }
    return block.stream->clock.happens_after(*use.clock, use.sequence);
  }
  HeapBlock& pop(Queue& queue) noexcept {
    HeapBlock& block = *queue.oldest;
    GANTRY_ASSERT(count_ > 0, "more blocks leave the queues than entered them");
    GANTRY_ASSERT(!block.uses.empty() && block.uses.back().clock == queue.clock,
                  "a block leaves the queue of another stream");
    queue.oldest = block.next_in_bin;
    if (queue.oldest == nullptr) queue.newest = nullptr;
    --count_;
    return block;
  }
  /// Ends the last use, which is complete. If it is complete because the own stream waited for it
  /// after the free, others may reuse the block behind that wait only.
  static void end_use(HeapBlock& block) noexcept {
    const StreamUse use = block.uses.back();
    block.uses.pop_back();
    if (block.stream == nullptr || use.sequence <= use.clock->completed()) return;
    if (StreamClock& own = block.stream->clock; !own.is_external()) {
      block.sequence = own.next_sequence();
    }
  }

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
  /// Adds a capture to a list, once. Throws: std::bad_alloc.
  static void add_capture(CaptureList& captures, std::shared_ptr<const Capture> capture) {
    if (std::ranges::find(captures, capture) != captures.end()) return;
    captures.push_back(std::move(capture));
  }
  /// Adds a capture to those that may use the block. Throws: std::bad_alloc.
  static void add_capture(HeapBlock& block, std::shared_ptr<const Capture> capture) {
    if (block.captures == nullptr) block.captures = std::make_unique<CaptureList>();
    add_capture(*block.captures, std::move(capture));
  }

  /// Holds a freed block. False, and nothing happened, if no graph may use it.
  [[nodiscard]] bool hold(HeapBlock& block) noexcept {
    if (block.captures == nullptr) return false;
    std::erase_if(*block.captures, [](const auto& capture) { return !capture->is_needed(); });
    if (block.captures->empty()) {
      block.captures.reset();
      return false;
    }
    block.next_in_bin = std::exchange(first_, &block);
    return true;
  }
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
  void verify() const noexcept {
    for (const HeapBlock* block = first_; block != nullptr; block = block->next_in_bin) {
      GANTRY_ASSERT(block->is(BlockUse::pending) || block->is(BlockUse::limbo),
                    "a block that a graph may use is not a freed one");
      GANTRY_ASSERT(block->captures != nullptr && !block->captures->empty(),
                    "a block is held for no graph");
    }
  }

 private:
  HeapBlock* first_ = nullptr;  ///< linked through next_in_bin
};

}  // namespace gantry::memory
