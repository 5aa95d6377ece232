// One block of a heap; its bookkeeping is out of line, because device memory cannot hold headers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "streams/stream_clock.hpp"

namespace gantry::memory {

class Arena;
struct StreamBlocks;

/// What a block is at the moment.
enum class BlockUse : std::uint8_t {
  blank,    ///< a descriptor without memory
  hole,     ///< addresses without memory
  mapping,  ///< a hole that gets memory, or just lost it; nobody else may touch it
  moving,   ///< between two of the others, with memory; nobody else may touch it
  free,     ///< in the index of free blocks
  cached,   ///< in a thread's magazine
  live,     ///< in the hands of a caller
  pending,  ///< freed, waits for other streams
  limbo,    ///< freed, waits for other processes
};

/// Work of another stream that uses a block.
struct StreamUse {
  StreamClock* clock = nullptr;
  std::uint64_t sequence =
      0;  ///< reached when the use is complete; 0: taken when the block is freed
};

/// A descriptor. Neighbours are those next to it in address order in the same range of addresses.
/// What the index looks at is in the first cache line.
struct alignas(64) HeapBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  HeapBlock* previous = nullptr;
  HeapBlock* next = nullptr;
  HeapBlock** link_to_this = nullptr;  ///< in a bin: the pointer to this block
  HeapBlock* next_in_bin = nullptr;    ///< also links blocks in lists while they are in no bin
  /// Live: the stream it belongs to. Free: the stream that may reuse it at once; nullptr: any may.
  StreamBlocks* stream = nullptr;
  std::atomic<std::uint32_t> call_site{0};  ///< who asked for it, while history is recorded
  std::atomic<BlockUse> use{BlockUse::blank};
  std::atomic<bool> exported{false};  ///< other processes may know it
  std::uint16_t bin = 0;              ///< of the index, while it is there

  /// Free: other streams may reuse it once its stream has reached this sequence number.
  std::uint64_t sequence = 0;
  Arena* arena = nullptr;
  std::atomic<std::size_t> requested{0};  ///< what the caller asked for
  std::vector<StreamUse> uses;            ///< other streams, while live or pending

  [[nodiscard]] std::byte* end() const { return data + bytes; }
};

/// Descriptors that are used again and again; they never move and are never given back.
class BlockSlab {
 public:
  /// Makes sure that the next `count` take() cannot fail. Throws: std::bad_alloc.
  void reserve(std::size_t count) {
    if (spare_count_ < count) [[unlikely]] {
      grow(count);
    }
  }
  /// A blank descriptor, in which only `next` is set, to nullptr. Call reserve() first.
  [[nodiscard]] HeapBlock& take() noexcept {
    HeapBlock& block = *spare_;
    spare_ = block.next;
    --spare_count_;
    block.next = nullptr;
    return block;
  }
  void give_back(HeapBlock& block) noexcept {
    block.use.store(BlockUse::blank, std::memory_order_relaxed);
    block.next = spare_;
    spare_ = &block;
    ++spare_count_;
  }

 private:
  using Page = std::array<HeapBlock, 64>;

  [[gnu::noinline]] void grow(std::size_t count) {
    while (spare_count_ < count) {
      Page& page = *pages_.emplace_back(std::make_unique<Page>());
      // In address order, so that few are in use close together.
      for (auto block = page.rbegin(); block != page.rend(); ++block) give_back(*block);
    }
  }

  std::vector<std::unique_ptr<Page>> pages_;
  HeapBlock* spare_ = nullptr;  ///< linked through next
  std::size_t spare_count_ = 0;
};

/// Cuts `block` after `bytes`; the rest becomes `rest`, a blank descriptor, which follows it.
inline void cut_block(HeapBlock& block, std::size_t bytes, HeapBlock& rest) noexcept {
  rest.data = block.data + bytes;
  rest.bytes = block.bytes - bytes;
  rest.arena = block.arena;
  rest.stream = block.stream;
  rest.sequence = block.sequence;
  rest.previous = &block;
  rest.next = block.next;
  if (rest.next != nullptr) rest.next->previous = &rest;
  block.next = &rest;
  block.bytes = bytes;
}

/// Joins `block` with its right neighbour, whose descriptor the caller gives back.
inline void absorb_next(HeapBlock& block) noexcept {
  HeapBlock& gone = *block.next;
  block.bytes += gone.bytes;
  block.next = gone.next;
  if (block.next != nullptr) block.next->previous = &block;
}

}  // namespace gantry::memory
