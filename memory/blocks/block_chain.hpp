// The blocks of one address range, in address order.
#pragma once

#include <cstddef>

#include "memory/blocks/free_blocks.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/blocks/tlsf_index.hpp"

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
  BlockChain(const BlockChain&) = delete;
  BlockChain& operator=(const BlockChain&) = delete;

  /// Makes one hole of the whole range, for blocks of `arena`. Throws: std::bad_alloc.
  void open(Arena* arena, std::byte* base, std::size_t bytes);
  /// The block with the lowest address.
  [[nodiscard]] const HeapBlock* first() const { return first_; }

  /// Begins a growth that maps as little as possible for `bytes` in a row that `stream` may use.
  /// Maps a multiple of `unit` where the hole is large enough. False if there are no addresses for
  /// it. Throws: std::bad_alloc.
  [[nodiscard]] bool begin(Growth& growth, std::size_t bytes, std::size_t unit,
                           const StreamBlocks& stream);
  /// The number of growths that have begun and not ended.
  [[nodiscard]] int growths() const { return growths_; }

  /// Takes the bytes [head, head + bytes) of a free block out of it: they are `in_transition`, and
  /// the other bytes stay free. Throws: std::bad_alloc; nothing has changed then.
  [[nodiscard]] HeapBlock& extract(HeapBlock& block, std::size_t head, std::size_t bytes);
  /// Makes a hole of a block whose memory is gone.
  void insert_hole(HeapBlock& block) noexcept;
  /// Asserts that the blocks lie side by side, each hole is one block, and every block that is
  /// being mapped belongs to a growth. No chunk is being unmapped meanwhile.
  void verify() const noexcept;

 private:
  friend class Growth;

  [[nodiscard]] GrowthPlan plan(std::size_t bytes, const StreamBlocks& stream) const noexcept;
  static void improve(GrowthPlan& best, HeapBlock& block, std::size_t bytes,
                      const StreamBlocks& stream) noexcept;

  BlockSlab& slab_;
  FreeBlocks& free_;
  HeapBlock* first_ = nullptr;
  TlsfIndex holes_;
  int growths_ = 0;
};

}  // namespace gantry::memory
