// The descriptor of one block. It is out of line, because device memory cannot hold headers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "core/assert.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {

class Capture;

}  // namespace gantry

namespace gantry::memory {

class Arena;
struct PinnedSegment;
struct StreamBlocks;

/// The state of a block.
enum class BlockUse : std::uint8_t {
  unused,         ///< a descriptor without memory
  hole,           ///< addresses without memory
  mapping,        ///< a hole that gets memory or just lost it; owned by the thread that maps
  in_transition,  ///< between two other states, with memory; owned by one thread
  free,           ///< in the index of free blocks
  cached,         ///< in a thread's magazine
  live,           ///< allocated
  pending,        ///< freed; other streams still use it
  limbo,          ///< freed; other processes still use it
};

/// Captures whose graphs may use a block.
using CaptureList = std::vector<std::shared_ptr<const Capture>>;

/// Work of another stream that uses a block.
struct StreamUse {
  StreamClock* clock = nullptr;
  /// Reached when the use is complete; 0: all work submitted before the free.
  std::uint64_t sequence = 0;
};

/// Waits for uses, as far as the host can. Throws: CudaError.
inline void wait_for(const std::vector<StreamUse>& uses) {
  for (const StreamUse& use : uses) static_cast<void>(use.clock->try_wait_for(use.sequence));
}

/// The descriptor of a block. Its neighbours are the blocks before and after it in the same address
/// range. The first cache line holds the members that the index reads.
struct alignas(64) HeapBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  HeapBlock* previous = nullptr;
  HeapBlock* next = nullptr;
  HeapBlock** link_to_this = nullptr;  ///< in a bin: the pointer to this block
  HeapBlock* next_in_bin = nullptr;    ///< also links blocks in lists while they are in no bin
  /// Live: the stream that it was allocated on. Free: the stream that may reuse it; nullptr: any.
  StreamBlocks* stream = nullptr;
  std::atomic<std::uint32_t> call_site{0};  ///< of its allocation, while history is recorded
  std::atomic<BlockUse> use{BlockUse::unused};
  std::atomic<bool> exported{false};  ///< another process may have imported it
  std::uint16_t bin = 0;              ///< while it is in an index

  /// Free: other streams may reuse it once its stream has reached this sequence number.
  std::uint64_t sequence = 0;
  union {
    Arena* arena = nullptr;
    PinnedSegment* segment;  ///< of a block of page-locked memory
  };
  std::atomic<std::size_t> requested{0};  ///< bytes that the caller asked for
  std::vector<StreamUse> uses;            ///< by other streams; live or pending
  std::unique_ptr<CaptureList> captures;  ///< while HeldBlocks holds it; else nullptr
  /// The capture of the pool has used a part of it. Reset when another capture gets the pool.
  bool captured = false;

  [[nodiscard]] std::byte* end() const { return data + bytes; }
  /// True if `use` is `state`. Another thread may change it, unless the caller holds its lock.
  [[nodiscard]] bool is(BlockUse state) const noexcept {
    return use.load(std::memory_order_relaxed) == state;
  }
  /// False for addresses without memory.
  [[nodiscard]] bool has_memory() const noexcept {
    return !is(BlockUse::hole) && !is(BlockUse::mapping);
  }

  /// Changes `use`, which is `from`. The caller owns the block or holds the lock that guards it.
  void change(BlockUse from, BlockUse to) noexcept { change({from}, to); }
  /// Changes `use`, which is one of `from`.
  void change([[maybe_unused]] std::initializer_list<BlockUse> from, BlockUse to) noexcept {
    GANTRY_ASSERT(std::ranges::find(from, use.load(std::memory_order_relaxed)) != from.end(),
                  "a block is not in the state that the change begins with");
    use.store(to, std::memory_order_relaxed);
  }
};
static_assert(sizeof(HeapBlock) == 128);

/// A free list of descriptors. Descriptors never move, and live as long as the slab.
class BlockSlab {
 public:
  /// Makes sure that the next `count` take() cannot fail. Throws: std::bad_alloc.
  void reserve(std::size_t count) {
    if (unused_count_ < count) [[unlikely]] {
      grow(count);
    }
  }
  /// An unused descriptor, of which only `next` is set, to nullptr. Call reserve() first.
  [[nodiscard]] HeapBlock& take() noexcept {
    GANTRY_ASSERT(unused_count_ > 0, "a descriptor is taken that was not reserved");
    HeapBlock& block = *unused_;
    GANTRY_ASSERT(block.is(BlockUse::unused), "a descriptor in the slab describes a block");
    unused_ = block.next;
    --unused_count_;
    block.next = nullptr;
    return block;
  }
  void recycle(HeapBlock& block) noexcept {
    GANTRY_ASSERT(&block != unused_, "a descriptor is recycled twice");
    block.use.store(BlockUse::unused, std::memory_order_relaxed);
    block.captured = false;
    block.next = unused_;
    unused_ = &block;
    ++unused_count_;
  }

 private:
  using Page = std::array<HeapBlock, 64>;

  [[gnu::noinline]] void grow(std::size_t count) {
    while (unused_count_ < count) {
      Page& page = *pages_.emplace_back(std::make_unique<Page>());
      // In address order.
      for (auto block = page.rbegin(); block != page.rend(); ++block) recycle(*block);
    }
  }

  std::vector<std::unique_ptr<Page>> pages_;
  HeapBlock* unused_ = nullptr;  ///< linked through next
  std::size_t unused_count_ = 0;
};

/// Splits `block` after `bytes`. `remainder`, an unused descriptor, becomes its right neighbour.
inline void split_block(HeapBlock& block, std::size_t bytes, HeapBlock& remainder) noexcept {
  GANTRY_ASSERT(0 < bytes && bytes < block.bytes, "a split leaves a part without bytes");
  GANTRY_ASSERT(remainder.is(BlockUse::unused),
                "the remainder of a split takes the descriptor of a block");
  remainder.data = block.data + bytes;
  remainder.bytes = block.bytes - bytes;
  remainder.arena = block.arena;
  remainder.stream = block.stream;
  remainder.sequence = block.sequence;
  remainder.captured = block.captured;
  remainder.previous = &block;
  remainder.next = block.next;
  if (remainder.next != nullptr) remainder.next->previous = &remainder;
  block.next = &remainder;
  block.bytes = bytes;
}

/// Joins `block` with its right neighbour, whose descriptor the caller recycles.
inline void absorb_next(HeapBlock& block) noexcept {
  const HeapBlock& absorbed = *block.next;
  GANTRY_ASSERT(absorbed.previous == &block && absorbed.data == block.end(),
                "a block absorbs one that does not begin where it ends");
  GANTRY_ASSERT(absorbed.arena == block.arena, "a block absorbs one of another arena");
  block.bytes += absorbed.bytes;
  block.captured = block.captured || absorbed.captured;
  block.next = absorbed.next;
  if (block.next != nullptr) block.next->previous = &block;
}

}  // namespace gantry::memory
