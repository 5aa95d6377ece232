// The free blocks of an arena, by the stream that may reuse them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/blocks/heap_block.hpp"
#include "memory/blocks/tlsf_index.hpp"

namespace gantry::memory {

/// The statistics that count free pieces of split memory.
struct SplitCounter {
  PoolStat* number = nullptr;
  PoolStat* bytes = nullptr;
  bool small = false;
};

/// Free blocks that only work of one stream may reuse.
struct StreamBlocks {
  explicit StreamBlocks(StreamClock& stream_clock) : clock(stream_clock) {}

  StreamClock& clock;
  TlsfIndex free;
  std::uint64_t earliest = kNoSequence;  ///< no block has a lower number
  std::uint64_t latest = 0;              ///< no block has a higher number

  static constexpr std::uint64_t kNoSequence = ~std::uint64_t{0};
};

// Note [Reuse of free blocks]
// A block that was freed on a stream is reused on that stream at once, because streams run in
// order. The free stores a sequence number of the stream's clock (streams/stream_clock.hpp) in the
// block. Another stream may reuse the block in two cases: it has waited for that number, or the
// host knows that the stream has reached it. So there is one list of free blocks for each stream,
// and one common list for blocks whose number is reached. Only a request that finds no free block
// asks the driver how far streams are.
//
// Two free neighbours are joined if every stream that may reuse the result could reuse both. A
// common block joins a stream's block, and the result is the stream's. Blocks of two streams stay
// apart until their numbers are reached. So do blocks that a graph uses and others.

/// How far a search for a free block goes.
enum class Search : std::uint8_t {
  own,         ///< blocks of the stream, and common ones
  ordered,     ///< these, and blocks of other streams that the stream happens after
  exhaustive,  ///< as ordered, and visits whole bins
};

/// Not thread-safe: the heap's lock protects it.
class FreeBlocks {
 public:
  /// `splits` counts free blocks that are pieces of split memory, if it has statistics. Without
  /// `shares_ordered`, no stream takes blocks of another one.
  /// No block is joined with a neighbour while `*keeps_whole`.
  FreeBlocks(BlockSlab& slab, SplitCounter splits, bool shares_ordered,
             const bool* keeps_whole = nullptr)
      : slab_(slab), splits_(splits), shares_ordered_(shares_ordered), keeps_whole_(keeps_whole) {}

  /// False if blocks stay as they were allocated.
  [[nodiscard]] bool joins() const { return keeps_whole_ == nullptr || !*keeps_whole_; }

  /// The blocks of `stream`; made at its first use. Throws: std::bad_alloc.
  [[nodiscard]] StreamBlocks& of(const Stream& stream) {
    const auto id = static_cast<std::size_t>(stream.id());
    StreamBlocks* known = id < streams_.size() ? streams_[id].get() : nullptr;
    return known != nullptr ? *known : make(stream);
  }

  /// Likewise, of the stream with this clock.
  [[nodiscard]] StreamBlocks& of(StreamClock& clock);

  /// The best fit of at least `bytes` that `stream` may use at once; nullptr if there is none. A
  /// fit among the stream's own and the common blocks goes first.
  [[nodiscard]] HeapBlock* find(std::size_t bytes, const StreamBlocks& stream,
                                Search search) const noexcept {
    HeapBlock* own = stream.free.find(bytes);
    HeapBlock* common = common_.empty() ? nullptr : common_.find(bytes);
    HeapBlock* best = own;
    if (own == nullptr || (common != nullptr && common->bytes < own->bytes)) best = common;
    if (best == nullptr && search != Search::own) return find_elsewhere(bytes, stream, search);
    return best;
  }
  /// The best fit of at least `bytes` among the common blocks; nullptr if there is none.
  [[nodiscard]] HeapBlock* find_common(std::size_t bytes) const noexcept {
    return common_.find(bytes);
  }
  /// The smallest sufficient block of another stream that an event can order.
  [[nodiscard]] HeapBlock* find_with_event_wait(std::size_t bytes,
                                                const StreamBlocks& stream) const noexcept;

  /// Makes `block` free for its `stream` (nullptr: for all) and joins it with its neighbours, which
  /// may recycle its descriptor. Returns the resulting block.
  HeapBlock& insert(HeapBlock& block) noexcept;
  /// As insert(), for the remainder of a split: its left neighbour is in use.
  void insert_remainder(HeapBlock& remainder) noexcept {
    if (may_absorb(remainder, remainder.next)) {
      insert(remainder);
    } else {
      enter(remainder);
    }
  }
  void remove(HeapBlock& block) noexcept {
    if (splits_.number != nullptr) count(block, false);
    index_of(block).remove(block);
    block.change(BlockUse::free, BlockUse::in_transition);
  }

  /// Moves blocks whose sequence numbers are known to be reached to the common list. True if there
  /// were any.
  bool promote_completed() noexcept;
  /// Bytes of the free blocks that are not common / true if all are.
  [[nodiscard]] std::size_t incomplete_bytes() const noexcept;
  [[nodiscard]] bool is_complete() const noexcept {
    return std::ranges::all_of(
        streams_, [](const auto& stream) { return stream == nullptr || stream->free.empty(); });
  }
  /// Resets `captured` of the common blocks, and joins those that it kept apart.
  void forget_capture() noexcept;
  /// As promote_completed(), after asking the driver how far the streams are.
  bool poll() noexcept;
  /// A stream with incomplete free blocks that the host can wait for; nullptr if there is none.
  [[nodiscard]] StreamBlocks* incomplete(HostWait wait = HostWait::anyhow) const noexcept;
  /// Adds the last sequence number of every stream whose free blocks wait for it.
  void list_last(std::vector<StreamUse>& uses) const;

  /// Calls `visit(HeapBlock&)` for common blocks of at least `bytes`, from small to large, until it
  /// returns false; it may remove the block that it was given.
  template <class Visit>
  void for_each_common(std::size_t bytes, Visit&& visit) const {
    common_.for_each(bytes, visit);
  }
  /// Calls `visit(HeapBlock&)` for common blocks, from large to small, until it returns false.
  template <class Visit>
  void for_each_common_from_largest(Visit&& visit) const {
    common_.for_each_from_largest(visit);
  }
  /// Asserts that the blocks are free, of the list's stream, and linked with their neighbours.
  void verify() const noexcept;
  /// Bytes of the largest free block of any stream.
  [[nodiscard]] std::size_t largest() const noexcept;

 private:
  [[nodiscard]] TlsfIndex& index_of(const HeapBlock& block) {
    return block.stream != nullptr ? block.stream->free : common_;
  }

  [[nodiscard]] bool may_absorb(const HeapBlock& block, const HeapBlock* neighbour) const noexcept {
    return neighbour != nullptr && joins() && neighbour->is(BlockUse::free) &&
           neighbour->captured == block.captured &&
           (neighbour->stream == block.stream || neighbour->stream == nullptr);
  }
  void enter(HeapBlock& block) noexcept {
    block.change({BlockUse::unused, BlockUse::in_transition, BlockUse::mapping, BlockUse::cached,
                  BlockUse::pending, BlockUse::limbo, BlockUse::free},
                 BlockUse::free);
    index_of(block).insert(block);
    if (block.stream != nullptr) {
      block.stream->earliest = std::min(block.stream->earliest, block.sequence);
      block.stream->latest = std::max(block.stream->latest, block.sequence);
    }
    if (splits_.number != nullptr) count(block, true);
  }
  [[nodiscard]] StreamBlocks& make(const Stream& stream);
  [[nodiscard]] HeapBlock* find_elsewhere(std::size_t bytes, const StreamBlocks& stream,
                                          Search search) const noexcept;
  void count(const HeapBlock& block, bool appears) noexcept;

  BlockSlab& slab_;
  const SplitCounter splits_;
  const bool shares_ordered_;
  const bool* const keeps_whole_;
  TlsfIndex common_;
  std::vector<std::unique_ptr<StreamBlocks>> streams_;  ///< by stream id; may have gaps
};

inline HeapBlock& FreeBlocks::insert(HeapBlock& block) noexcept {
  HeapBlock* whole = &block;
  if (HeapBlock* next = block.next; may_absorb(block, next)) {
    remove(*next);
    if (next->stream == block.stream) block.sequence = std::max(block.sequence, next->sequence);
    absorb_next(block);
    slab_.recycle(*next);
  }
  if (HeapBlock* previous = block.previous; may_absorb(block, previous)) {
    remove(*previous);
    if (previous->stream == block.stream) {
      block.sequence = std::max(block.sequence, previous->sequence);
    }
    previous->stream = block.stream;
    previous->sequence = block.sequence;
    absorb_next(*previous);
    slab_.recycle(block);
    whole = previous;
  }
  enter(*whole);
  return *whole;
}

}  // namespace gantry::memory
