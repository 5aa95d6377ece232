#include "memory/blocks/deferred_frees.hpp"

#include <algorithm>

#include "core/assert.hpp"
#include "memory/blocks/free_blocks.hpp"

namespace gantry::memory {

void DeferredFrees::add_use(HeapBlock& block, StreamClock& clock, std::uint64_t sequence) {
  const auto is_same_clock = [&clock](const auto& entry) { return entry.clock == &clock; };
  if (std::ranges::none_of(queues_, is_same_clock)) queues_.push_back({.clock = &clock});
  const auto known = std::ranges::find_if(block.uses, is_same_clock);
  if (known == block.uses.end()) {
    block.uses.push_back({&clock, sequence});
  } else if (known->sequence != 0) {
    known->sequence = sequence == 0 ? 0 : std::max(known->sequence, sequence);
  }
}

void DeferredFrees::freeze_uses(HeapBlock& block) noexcept {
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

void DeferredFrees::cover_uses(const HeapBlock& block) noexcept {
  for (const StreamUse& use : block.uses) use.clock->cover(use.sequence);
}

bool DeferredFrees::enqueue(HeapBlock& block) noexcept {
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

// Ends the last use, which is complete. If it is complete because the own stream waited for it
// after the free, others may reuse the block behind that wait only.
void DeferredFrees::end_use(HeapBlock& block) noexcept {
  const StreamUse use = block.uses.back();
  block.uses.pop_back();
  if (block.stream == nullptr || use.sequence <= use.clock->completed()) return;
  if (StreamClock& own = block.stream->clock; !own.is_external()) {
    block.sequence = own.next_sequence();
  }
}

bool DeferredFrees::is_complete(const HeapBlock& block) const noexcept {
  const StreamUse& use = block.uses.back();
  if (block.stream == nullptr || block.stream->clock.is_external()) {
    return use.sequence <= use.clock->completed() ||
           (freed_after_ != nullptr && use.sequence <= freed_after_->get(use.clock->slot()));
  }
  return block.stream->clock.happens_after(*use.clock, use.sequence);
}

HeapBlock& DeferredFrees::pop(Queue& queue) noexcept {
  HeapBlock& block = *queue.oldest;
  GANTRY_ASSERT(count_ > 0, "more blocks leave the queues than entered them");
  GANTRY_ASSERT(!block.uses.empty() && block.uses.back().clock == queue.clock,
                "a block leaves the queue of another stream");
  queue.oldest = block.next_in_bin;
  if (queue.oldest == nullptr) queue.newest = nullptr;
  --count_;
  return block;
}

void DeferredFrees::verify() const noexcept {
  std::size_t count = 0;
  for (const Queue& queue : queues_) {
    const HeapBlock* last = nullptr;
    for (const HeapBlock* block = queue.oldest; block != nullptr; block = block->next_in_bin) {
      GANTRY_ASSERT(block->is(BlockUse::pending), "a block that waits for a stream is not pending");
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

void DeferredFrees::poll() noexcept {
  for (const Queue& queue : queues_) {
    if (queue.oldest != nullptr) queue.clock->poll(queue.oldest->uses.back().sequence);
  }
}

StreamUse DeferredFrees::oldest(HostWait wait) const noexcept {
  for (const Queue& queue : queues_) {
    if (queue.oldest == nullptr) continue;
    const StreamUse use = queue.oldest->uses.back();
    if (use.clock->can_wait_for(use.sequence, wait)) return use;
  }
  return {};
}

void DeferredFrees::list_first(std::vector<StreamUse>& uses) const {
  for (const Queue& queue : queues_) {
    if (queue.oldest != nullptr) uses.push_back(queue.oldest->uses.back());
  }
}

void DeferredFrees::list_last(std::vector<StreamUse>& uses) const {
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

std::vector<DeferredFrees::Waiting> DeferredFrees::waiting() const {
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

void HeldBlocks::add_capture(HeapBlock& block, std::shared_ptr<const Capture> capture) {
  if (block.captures == nullptr) block.captures = std::make_unique<CaptureList>();
  CaptureList& captures = *block.captures;
  if (std::ranges::find(captures, capture) == captures.end()) {
    captures.push_back(std::move(capture));
  }
}

bool HeldBlocks::hold(HeapBlock& block) noexcept {
  if (block.captures == nullptr) return false;
  std::erase_if(*block.captures, [](const auto& capture) { return !capture->is_needed(); });
  if (block.captures->empty()) {
    block.captures.reset();
    return false;
  }
  block.next_in_bin = std::exchange(first_, &block);
  return true;
}

void HeldBlocks::verify() const noexcept {
  for (const HeapBlock* block = first_; block != nullptr; block = block->next_in_bin) {
    GANTRY_ASSERT(block->is(BlockUse::pending) || block->is(BlockUse::limbo),
                  "a block that a graph may use is not a freed one");
    GANTRY_ASSERT(block->captures != nullptr && !block->captures->empty(),
                  "a block is held for no graph");
  }
}

}  // namespace gantry::memory
