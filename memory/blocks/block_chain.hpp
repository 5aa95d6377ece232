// The blocks of one address range, in address order.
#pragma once

#include <cstddef>
#include <utility>

#include "core/assert.hpp"
#include "memory/blocks/free_blocks.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/blocks/tlsf_index.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {

class BlockChain;

/// The free neighbours of a hole that is about to get memory, and where in the hole they lie.
struct GrowthPlan {
  HeapBlock* left = nullptr;
  HeapBlock* hole = nullptr;  ///< nullptr: there is no place to grow
  HeapBlock* right = nullptr;
  std::size_t bytes = 0;    ///< of new memory
  bool at_the_end = false;  ///< of the hole, not at its beginning
};

/// The growth of an arena for one request, between its attempts.
///
/// Once begun, it keeps a hole, which is `mapping`, and the free blocks beside it, which are
/// `in_transition`. No other thread takes them or their chunks. Destroy it with the heap's lock
/// held: then they are as they were before.
class Growth {
 public:
  Growth() = default;
  ~Growth() { cancel(); }
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;

  /// Bytes of the segment to make; 0: as segment_bytes() says.
  std::size_t segment_bytes = 0;
  /// Bytes of unmapped chunks that the last attempt lacked; 0 if more of them do not help.
  std::size_t missing = 0;

  [[nodiscard]] bool has_begun() const { return chain_ != nullptr; }
  /// The hole to be mapped, once begun.
  [[nodiscard]] HeapBlock& hole() const { return *plan_.hole; }
  /// Frees the blocks that it keeps, and returns the hole. The caller frees that, if it has memory
  /// now: then it is one block with its neighbours.
  [[nodiscard]] HeapBlock& end() noexcept;
  /// Ends it without new memory, if it has begun.
  void cancel() noexcept;

 private:
  friend class BlockChain;

  BlockChain* chain_ = nullptr;
  GrowthPlan plan_;
};

// Note [Holes]
// Addresses are plentiful, but memory is scarce. The address range of an arena is a multiple of the
// device's memory and is never released. A range without memory is a block too: a hole, with
// neighbours like any block. Growing maps chunks in a hole, next to the free blocks that save most
// memory. Reclaiming unmaps whole chunks from the middle of free blocks and leaves a hole there.
// Fragments of free memory are therefore not lost: their chunks are mapped again where a block
// needs them, without a copy.

/// All blocks of an address range, with and without memory. Each one's neighbours are the blocks
/// before and after it.
///
/// Not thread-safe: the heap's lock protects it.
class BlockChain {
 public:
  BlockChain(BlockSlab& slab, FreeBlocks& free) : slab_(slab), free_(free) {}

  /// Makes one hole of the whole range, for blocks of `arena`. Throws: std::bad_alloc.
  void open(Arena* arena, std::byte* base, std::size_t bytes) {
    GANTRY_ASSERT(first_ == nullptr, "an address range is opened twice");
    slab_.reserve(1);
    HeapBlock& all = slab_.take();
    all.data = base;
    all.bytes = bytes;
    all.arena = arena;
    all.previous = nullptr;
    first_ = &all;
    insert_hole(all);
  }
  /// The block with the lowest address.
  [[nodiscard]] const HeapBlock* first() const { return first_; }

  /// Begins a growth that maps as little as possible for `bytes` in a row that `stream` may use.
  /// Maps a multiple of `unit` where the hole is large enough. False if there are no addresses for
  /// it. Throws: std::bad_alloc.
  [[nodiscard]] bool begin(Growth& growth, std::size_t bytes, std::size_t unit,
                           const StreamBlocks& stream) {
    GANTRY_ASSERT(!growth.has_begun(), "a growth begins a second time");
    slab_.reserve(1);
    GrowthPlan found = plan(bytes, stream);
    if (found.hole == nullptr) return false;
    const bool fills_hole = found.left != nullptr && found.right != nullptr;
    if (const std::size_t whole = round_up(found.bytes, unit);
        !fills_hole && whole <= found.hole->bytes) {
      found.bytes = whole;
    }
    GANTRY_ASSERT(found.bytes <= found.hole->bytes, "a growth maps more than its hole");
    GANTRY_ASSERT(!fills_hole || found.bytes == found.hole->bytes,
                  "a growth between two blocks leaves a hole there");
    holes_.remove(*found.hole);
    if (found.hole->bytes > found.bytes) {
      HeapBlock* unused = &slab_.take();
      split_block(*found.hole, found.at_the_end ? found.hole->bytes - found.bytes : found.bytes,
                  *unused);
      if (found.at_the_end) std::swap(found.hole, unused);
      unused->change({BlockUse::unused, BlockUse::hole}, BlockUse::hole);
      holes_.insert(*unused);
    }
    found.hole->change({BlockUse::hole, BlockUse::unused}, BlockUse::mapping);
    found.hole->sequence = 0;
    GANTRY_ASSERT(found.left == nullptr || found.left == found.hole->previous,
                  "a growth joins a left block that is not beside its hole");
    GANTRY_ASSERT(found.right == nullptr || found.right == found.hole->next,
                  "a growth joins a right block that is not beside its hole");
    // Only blocks that are alike in this become one.
    const bool captured = (found.left != nullptr && found.left->captured) ||
                          (found.right != nullptr && found.right->captured);
    found.hole->captured = captured;
    for (HeapBlock* neighbour : {found.left, found.right}) {
      if (neighbour == nullptr) continue;
      free_.remove(*neighbour);
      neighbour->captured = captured;
      // It may belong to the stream of the request. Then the whole block will.
      if (neighbour->stream != nullptr) found.hole->stream = neighbour->stream;
    }
    growth.chain_ = this;
    growth.plan_ = found;
    ++growths_;
    return true;
  }
  /// The number of growths that have begun and not ended.
  [[nodiscard]] int growths() const { return growths_; }

  /// Takes the bytes [head, head + bytes) of a free block out of it: they are `in_transition`, and
  /// the other bytes stay free. Throws: std::bad_alloc; nothing has changed then.
  [[nodiscard]] HeapBlock& extract(HeapBlock& block, std::size_t head, std::size_t bytes) {
    GANTRY_ASSERT(head <= block.bytes && bytes <= block.bytes - head,
                  "more is taken out of a block than it has");
    slab_.reserve(2);
    HeapBlock* part = &block;
    free_.remove(*part);
    if (head > 0) {
      HeapBlock& remainder = slab_.take();
      split_block(*part, head, remainder);
      remainder.change(BlockUse::unused, BlockUse::in_transition);
      free_.insert(*std::exchange(part, &remainder));
    }
    if (part->bytes > bytes) {
      HeapBlock& remainder = slab_.take();
      split_block(*part, bytes, remainder);
      free_.insert(remainder);
    }
    return *part;
  }
  /// Makes a hole of a block whose memory is gone.
  void insert_hole(HeapBlock& block) noexcept {
    HeapBlock* whole = &block;
    block.stream = nullptr;
    if (HeapBlock* next = block.next; is_hole(next)) {
      holes_.remove(*next);
      absorb_next(block);
      slab_.recycle(*next);
    }
    if (HeapBlock* previous = block.previous; is_hole(previous)) {
      holes_.remove(*previous);
      absorb_next(*previous);
      slab_.recycle(block);
      whole = previous;
    }
    whole->change({BlockUse::mapping, BlockUse::in_transition, BlockUse::hole, BlockUse::unused},
                  BlockUse::hole);
    holes_.insert(*whole);
  }
  /// Asserts that the blocks lie side by side, each hole is one block, and every block that is
  /// being mapped belongs to a growth. No chunk is being unmapped meanwhile.
  void verify() const noexcept {
    holes_.verify();
    [[maybe_unused]] int mapping = 0;
    for (const HeapBlock* block = first_; block != nullptr; block = block->next) {
      GANTRY_ASSERT(block->next == nullptr ||
                        (block->next->previous == block && block->next->data == block->end()),
                    "an address range has a gap between its blocks");
      GANTRY_ASSERT(!is_hole(block) || !is_hole(block->next), "two holes side by side are not one");
      if (block->is(BlockUse::mapping)) ++mapping;
    }
    GANTRY_ASSERT(mapping == growths_, "a block is being mapped for no growth");
  }

 private:
  friend class Growth;

  static bool is_hole(const HeapBlock* block) {
    return block != nullptr && block->is(BlockUse::hole);
  }
  /// True for a free block that work of `stream` may use at once.
  static bool may_use(const HeapBlock* block, const StreamBlocks& stream) {
    return block != nullptr && block->is(BlockUse::free) &&
           (block->stream == nullptr || block->stream == &stream);
  }
  /// The growth that maps the least: in a hole that is large enough by itself, or between free
  /// blocks that this stream may use.
  [[nodiscard]] GrowthPlan plan(std::size_t bytes, const StreamBlocks& stream) const noexcept {
    GrowthPlan best;
    best.bytes = round_up(bytes, kFineChunkBytes);
    best.hole = holes_.find(best.bytes);
    if (!free_.joins()) return best;
    if (best.hole != nullptr && may_use(best.hole->previous, stream)) {
      improve(best, *best.hole->previous, bytes, stream);
    }
    // Small blocks save too little to look at all of them.
    constexpr int kCandidates = 32;
    int candidates = 0;
    const auto consider = [&](HeapBlock& block) {
      improve(best, block, bytes, stream);
      return ++candidates < kCandidates;
    };
    free_.for_each_common_from_largest(consider);
    candidates = 0;
    stream.free.for_each_from_largest(consider);
    return best;
  }
  /// Replaces `best` if growing `block`, which the stream may use, into a hole next to it maps
  /// less.
  static void improve(GrowthPlan& best, HeapBlock& block, std::size_t bytes,
                      const StreamBlocks& stream) noexcept {
    const auto consider = [&](const GrowthPlan& place) {
      const std::size_t there = (place.left != nullptr ? place.left->bytes : 0) +
                                (place.right != nullptr ? place.right->bytes : 0);
      const std::size_t need =
          there >= bytes ? kFineChunkBytes : round_up(bytes - there, kFineChunkBytes);
      // With a block on both sides, everything between them has to be mapped.
      const bool both = place.left != nullptr && place.right != nullptr;
      const std::size_t mapped = both ? place.hole->bytes : need;
      if (need > place.hole->bytes || (best.hole != nullptr && mapped >= best.bytes)) return;
      best = place;
      best.bytes = mapped;
      best.at_the_end = place.left == nullptr;
    };
    if (HeapBlock* hole = block.next; is_hole(hole)) {
      consider({.left = &block, .hole = hole});
      if (may_use(hole->next, stream))
        consider({.left = &block, .hole = hole, .right = hole->next});
    }
    if (HeapBlock* hole = block.previous; is_hole(hole)) {
      consider({.hole = hole, .right = &block});
    }
  }

  BlockSlab& slab_;
  FreeBlocks& free_;
  HeapBlock* first_ = nullptr;
  TlsfIndex holes_;
  int growths_ = 0;
};

inline void Growth::cancel() noexcept {
  if (!has_begun()) return;
  BlockChain& chain = *chain_;
  chain.insert_hole(end());
}

inline HeapBlock& Growth::end() noexcept {
  BlockChain& chain = *std::exchange(chain_, nullptr);
  const GrowthPlan plan = std::exchange(plan_, {});
  GANTRY_ASSERT(chain.growths_ > 0, "more growths end than began");
  GANTRY_ASSERT(plan.hole->is(BlockUse::mapping), "the hole of a growth has another owner");
  --chain.growths_;
  if (plan.left != nullptr) chain.free_.insert(*plan.left);
  if (plan.right != nullptr) chain.free_.insert(*plan.right);
  return *plan.hole;
}

}  // namespace gantry::memory
