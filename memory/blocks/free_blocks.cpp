#include "memory/blocks/free_blocks.hpp"

#include <climits>

#include "core/assert.hpp"
#include "memory/stats/counters.hpp"

namespace gantry::memory {

StreamBlocks& FreeBlocks::make(const Stream& stream) {
  StreamBlocks& made = of(StreamClock::of(stream));
  GANTRY_ASSERT(made.clock.id() == stream.id(), "a stream has the clock of another one");
  return made;
}

StreamBlocks& FreeBlocks::of(StreamClock& clock) {
  const auto id = static_cast<std::size_t>(clock.id());
  if (id >= streams_.size()) streams_.resize(id + 1);
  if (streams_[id] == nullptr) streams_[id] = std::make_unique<StreamBlocks>(clock);
  return *streams_[id];
}

// The best fit among the blocks that the first search did not look at.
HeapBlock* FreeBlocks::find_elsewhere(std::size_t bytes, const StreamBlocks& stream,
                                      Search search) const noexcept {
  HeapBlock* best = nullptr;
  const int probes = search == Search::exhaustive ? INT_MAX : TlsfIndex::kProbes;
  const auto look_in = [&](const TlsfIndex& index, auto&& accept) {
    HeapBlock* found = index.find_if(bytes, accept, probes);
    if (found != nullptr && (best == nullptr || found->bytes < best->bytes)) best = found;
  };
  if (search == Search::exhaustive) {
    const auto any = [](const HeapBlock&) { return true; };
    look_in(stream.free, any);
    look_in(common_, any);
  }
  for (const auto& other : streams_) {
    if (!shares_ordered_ || other == nullptr || other.get() == &stream) continue;
    look_in(other->free, [&](const HeapBlock& block) {
      return stream.clock.happens_after(other->clock, block.sequence);
    });
  }
  return best;
}

HeapBlock* FreeBlocks::find_with_event_wait(std::size_t bytes,
                                            const StreamBlocks& stream) const noexcept {
  HeapBlock* best = nullptr;
  for (const auto& other : streams_) {
    if (other == nullptr || other.get() == &stream) continue;
    // No event can be recorded on these.
    if (other->clock.is_invalidated() || other->clock.is_external()) continue;
    HeapBlock* found = other->free.find(bytes);
    if (found != nullptr && (best == nullptr || found->bytes < best->bytes)) best = found;
  }
  return best;
}

std::size_t FreeBlocks::incomplete_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    stream->free.for_each(0, [&](const HeapBlock& block) {
      bytes += block.bytes;
      return true;
    });
  }
  return bytes;
}

void FreeBlocks::count(const HeapBlock& block, bool appears) noexcept {
  if (block.previous == nullptr && block.next == nullptr) return;
  if (appears) {
    increase(*splits_.number, splits_.small, 1);
    increase(*splits_.bytes, splits_.small, block.bytes);
  } else {
    decrease(*splits_.number, splits_.small, 1);
    decrease(*splits_.bytes, splits_.small, block.bytes);
  }
}

bool FreeBlocks::promote_completed() noexcept {
  bool any = false;
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    const std::uint64_t reached = stream->clock.completed();
    if (stream->earliest > reached) continue;
    std::uint64_t earliest = StreamBlocks::kNoSequence;
    stream->free.for_each(0, [&](HeapBlock& block) {
      if (block.sequence > reached) {
        earliest = std::min(earliest, block.sequence);
        return true;
      }
      remove(block);
      block.stream = nullptr;
      insert(block);
      any = true;
      return true;
    });
    GANTRY_ASSERT(stream->free.empty() == (earliest == StreamBlocks::kNoSequence),
                  "the list of a stream does not know its earliest block");
    stream->earliest = earliest;
  }
  return any;
}

void FreeBlocks::forget_capture() noexcept {
  for (;;) {
    HeapBlock* captured = nullptr;
    common_.for_each(0, [&](HeapBlock& block) {
      if (block.captured) captured = &block;
      return captured == nullptr;
    });
    if (captured == nullptr) return;
    remove(*captured);
    captured->captured = false;
    insert(*captured);
  }
}

bool FreeBlocks::poll() noexcept {
  for (const auto& stream : streams_) {
    if (stream != nullptr && !stream->free.empty()) stream->clock.poll(stream->latest);
  }
  return promote_completed();
}

StreamBlocks* FreeBlocks::incomplete(HostWait wait) const noexcept {
  for (const auto& stream : streams_) {
    if (stream == nullptr || stream->free.empty()) continue;
    if (stream->clock.can_wait_for(stream->earliest, wait)) return stream.get();
  }
  return nullptr;
}

void FreeBlocks::list_last(std::vector<StreamUse>& uses) const {
  for (const auto& stream : streams_) {
    if (stream == nullptr || stream->free.empty()) continue;
    std::uint64_t last = 0;
    stream->free.for_each(0, [&last](const HeapBlock& block) {
      last = std::max(last, block.sequence);
      return true;
    });
    uses.push_back({&stream->clock, last});
  }
}

std::size_t FreeBlocks::largest() const noexcept {
  std::size_t bytes = 0;
  const auto consider = [&bytes](const HeapBlock* block) {
    if (block != nullptr && block->bytes > bytes) bytes = block->bytes;
  };
  consider(common_.largest());
  for (const auto& stream : streams_) {
    if (stream != nullptr) consider(stream->free.largest());
  }
  return bytes;
}

void FreeBlocks::verify() const noexcept {
  const auto verify_list = [](const TlsfIndex& list, [[maybe_unused]] const StreamBlocks* stream) {
    list.verify();
    list.for_each(0, [&](const HeapBlock& block) {
      GANTRY_ASSERT(block.is(BlockUse::free), "a block of the index is not free");
      GANTRY_ASSERT(block.stream == stream, "a free block is in the list of another stream");
      GANTRY_ASSERT(stream == nullptr ||
                        (stream->earliest <= block.sequence && block.sequence <= stream->latest),
                    "a free block is outside the range of its stream's list");
      GANTRY_ASSERT(block.previous == nullptr ||
                        (block.previous->next == &block && block.previous->end() == block.data),
                    "a free block does not begin where its neighbour ends");
      GANTRY_ASSERT(block.next == nullptr ||
                        (block.next->previous == &block && block.end() == block.next->data),
                    "a free block does not end where its neighbour begins");
      return true;
    });
  };
  verify_list(common_, nullptr);
  for (const auto& stream : streams_) {
    if (stream != nullptr) verify_list(stream->free, stream.get());
  }
}

}  // namespace gantry::memory
