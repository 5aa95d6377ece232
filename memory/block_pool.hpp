// Blocks of device memory, cut from segments, and the free ones in best-fit order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <set>

#include <gantry/device/driver.hpp>

#include "memory/stream_uses.hpp"

namespace gantry::memory {

struct BlockNode;

/// One piece of memory from the driver, cut into blocks for work on one stream.
struct Segment {
  void* base = nullptr;
  std::size_t bytes = 0;
  NativeStream stream;
  bool small = false;                          ///< holds blocks of the small pool
  std::optional<NativeMemoryHandle> exported;  ///< its name for other processes, once asked for
};

/// Orders free blocks by stream, size and address.
struct BlockOrder {
  using is_transparent = void;
  struct Key {
    void* stream;
    std::size_t bytes;
  };
  bool operator()(const BlockNode* a, const BlockNode* b) const;
  bool operator()(const BlockNode* a, const Key& b) const;
};
using FreeBlocks = std::set<BlockNode*, BlockOrder>;

/// One block: live, waiting for other streams, or free. Neighbours are those in the same segment.
struct BlockNode : StreamUses {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::size_t requested = 0;  ///< what the caller asked for; 0 unless live or waiting
  std::list<Segment>::iterator segment;
  BlockNode* previous = nullptr;
  BlockNode* next = nullptr;
  bool live = false;           ///< in the hands of a caller
  bool free = false;           ///< in its pool's free set
  std::uint64_t freed_at = 0;  ///< the heap's clock when it became free
  /// The block's own place in the free set, kept while it is elsewhere: moving in and out allocates
  /// nothing.
  FreeBlocks::node_type place;

  /// True if the block is only a part of its segment.
  [[nodiscard]] bool is_split() const { return previous != nullptr || next != nullptr; }
};

/// Block nodes that are used again and again; they never move and are never given back.
class BlockNodes {
 public:
  /// Makes sure that the next two take() cannot fail. Throws: std::bad_alloc.
  void reserve() {
    if (spare_ == nullptr || spare_->next == nullptr) grow();
  }
  /// A blank node. Call reserve() first.
  [[nodiscard]] BlockNode& take() noexcept;
  void give_back(BlockNode& node) noexcept;

 private:
  void grow();

  std::deque<BlockNode> nodes_;
  BlockNode* spare_ = nullptr;  ///< linked through next
};

/// The free blocks of one size class, over all streams.
class BlockPool {
 public:
  /// Takes out the smallest free block of `stream` with at least `bytes`; nullptr if there is none
  /// that fits: requests below `max_split_bytes` never take blocks of that size, larger ones only
  /// blocks that are not too much larger, because neither is cut.
  [[nodiscard]] BlockNode* take_best_fit(NativeStream stream, std::size_t bytes,
                                         std::size_t max_split_bytes) noexcept;
  void insert(BlockNode& node) noexcept;
  void remove(BlockNode& node) noexcept;

  [[nodiscard]] const FreeBlocks& blocks() const { return blocks_; }

 private:
  FreeBlocks blocks_;
};

/// Cuts `node` after `bytes`; the rest becomes `rest`, a blank node, which follows it.
void split_block(BlockNode& node, std::size_t bytes, BlockNode& rest) noexcept;

/// Joins `node` with its right neighbour, which becomes blank.
void join_with_next(BlockNode& node) noexcept;

}  // namespace gantry::memory
