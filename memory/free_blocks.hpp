// The free blocks of an arena, by who may reuse them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/heap_block.hpp"
#include "memory/tlsf_index.hpp"

namespace gantry::memory {

/// Counts the free pieces of memory that was cut.
struct SplitCounter {
  PoolStat* number = nullptr;
  PoolStat* bytes = nullptr;
  bool small = false;
};

/// The free blocks that work of one stream may still use.
struct StreamBlocks {
  explicit StreamBlocks(StreamClock& stream_clock) : clock(stream_clock) {}

  StreamClock& clock;
  TlsfIndex free;
  std::uint64_t earliest = kNoMark;  ///< no block's mark is lower

  static constexpr std::uint64_t kNoMark = ~std::uint64_t{0};
};

// Note [Who may reuse a free block]
// A block that was freed on a stream is reused on that stream at once, because streams run in
// order. Its mark is a number of the stream's clock (streams/stream_clock.hpp): once another stream
// has waited for that mark, or the host has seen it reached, the block is safe there too. So free
// blocks are kept by stream, and move to the common stock, for anybody, when their mark is known to
// be reached. Nothing of this asks the driver; only reclaiming does, and only when no block fits.
// Two free neighbours become one if the result is still safe for whoever may reuse it: a common
// block joins a stream's, two streams' blocks stay apart until their marks are reached.

/// Not thread-safe: the heap's lock protects it.
class FreeBlocks {
 public:
  /// `splits` hears of free blocks that are pieces of something, nullptr if nobody counts them.
  FreeBlocks(BlockSlab& slab, SplitCounter* splits) : slab_(slab), splits_(splits) {}

  /// The blocks of `stream`; made at its first use. Throws: std::bad_alloc.
  [[nodiscard]] StreamBlocks& of(const Stream& stream);

  /// Takes out the best fit of at least `bytes` among what `stream` may reuse without any wait.
  [[nodiscard]] HeapBlock* take(std::size_t bytes, StreamBlocks& stream) noexcept;
  /// As take(), among other streams' blocks whose marks `stream` is already behind.
  [[nodiscard]] HeapBlock* take_ordered(std::size_t bytes, const StreamBlocks& stream) noexcept;
  /// The smallest sufficient block of another stream that can still be waited for; it stays here.
  [[nodiscard]] HeapBlock* find_other(std::size_t bytes, const StreamBlocks& stream) const noexcept;

  /// Makes `block` free for its `stream` (anybody if nullptr) and joins it with its neighbours; its
  /// descriptor may be given back. Returns the block that results.
  HeapBlock& insert(HeapBlock& block) noexcept;
  void remove(HeapBlock& block) noexcept;

  /// Moves blocks whose marks are reached to the common stock. True if there were any.
  bool settle() noexcept;
  /// As settle(), after asking the streams how far they are.
  bool poll() noexcept;
  /// A stream whose free blocks wait for it, nullptr if there is none.
  [[nodiscard]] StreamBlocks* unsettled() const noexcept;
  /// Adds the last mark of every stream whose free blocks wait for it.
  void list(std::vector<StreamUse>& uses) const;

  /// Calls `visit(HeapBlock&)` for common blocks of at least `bytes`, from small to large, until it
  /// returns false; it may remove the block that it was given.
  template <class Visit>
  void for_each_common(std::size_t bytes, Visit&& visit) const {
    common_.for_each(bytes, visit);
  }
  /// Bytes of the largest free block, whoever may reuse it.
  [[nodiscard]] std::size_t largest() const noexcept;

 private:
  [[nodiscard]] TlsfIndex& index_of(const HeapBlock& block) {
    return block.stream != nullptr ? block.stream->free : common_;
  }

  void count(const HeapBlock& block, bool appears) noexcept;

  BlockSlab& slab_;
  SplitCounter* const splits_;
  TlsfIndex common_;
  std::vector<std::unique_ptr<StreamBlocks>> streams_;  ///< by stream id; may have gaps
};

}  // namespace gantry::memory
