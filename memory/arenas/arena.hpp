// The source of a heap's blocks: memory that grows and shrinks, split into blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <gantry/memory/mem_pool.hpp>

#include "memory/arenas/exportable.hpp"
#include "memory/arenas/heap_state.hpp"
#include "memory/blocks/block_chain.hpp"
#include "memory/blocks/free_blocks.hpp"
#include "memory/history/history.hpp"
#include "memory/policy/size_policy.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {

/// A set of blocks that is never mixed with another one's, as its sources see it. Each is a Pool
/// (memory/heap/pool_set.hpp).
struct ArenaOwner {
  explicit ArenaOwner(bool captures) : serves_captures(captures) {}

  std::uint64_t id = 0;  ///< 0: the common pool
  MemPoolOptions options;
  std::atomic<bool> released{false};  ///< its physical memory; written under the heap's lock
  const bool serves_captures;         ///< one at a time; see Note [Memory of captures]
  std::shared_ptr<const Capture> capture{};

  /// True if a graph may use addresses of free blocks that are `captured`, so that their memory
  /// must stay there.
  [[nodiscard]] bool is_pinned() const { return capture != nullptr && capture->is_needed(); }
};

/// A request for a block.
struct BlockRequest {
  /// Bytes that the caller asked for.
  std::size_t bytes;
  /// A power of two from kBlockGrain on.
  std::size_t alignment;
  /// Size of a block that holds the aligned bytes, whatever its own address is.
  std::size_t size;
  /// The free blocks of the stream that will use the block.
  StreamBlocks& stream;
};

/// The chunks that Arena::grow may take.
enum class ChunkSource : std::uint8_t {
  unmapped,  ///< chunks that this process holds already
  driver,    ///< these, and new ones of the driver
};

/// A source of blocks for one pool: for its small blocks, its large ones, or all.
///
/// Call every member with the heap's lock held. Members that take the lock as an argument release
/// it while they call the driver. The blocks that they work on are `in_transition` or `mapping`
/// meanwhile, so no other thread touches them.
class Arena {
 public:
  /// `splits_freely`: any free block may serve any request that fits, and is split to its size.
  /// Else statistics count the free pieces of split memory, which are of no use elsewhere.
  Arena(HeapState& state, ArenaOwner& owner, bool small, bool splits_freely);
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Takes a free block for the request and splits it; nullptr if there is none. The block is
  /// `in_transition`.
  [[nodiscard]] HeapBlock* take(const BlockRequest& request, Search search) noexcept {
    HeapBlock* block = free.find(request.size, request.stream, search);
    if (block == nullptr || !may_serve(*block, request.size)) return nullptr;
    return &take(*block, request);
  }
  /// Takes this free block, which may serve the request, and splits it.
  [[nodiscard]] HeapBlock& take(HeapBlock& block, const BlockRequest& request) noexcept {
    GANTRY_ASSERT(block.bytes >= request.size, "a block is smaller than the request");
    free.remove(block);
    HeapBlock* taken = &block;
    std::size_t used = request.size;
    if (request.alignment != kBlockGrain) [[unlikely]] {
      taken = &split_head(block, request.alignment);
      used = block_bytes(request.bytes) + padding_of(taken->data, request.alignment);
    }
    if (HeapBlock* remainder = split(*taken, used, used)) free.insert_remainder(*remainder);
    taken->captured = serves_captures_;
    return *taken;
  }
  /// True if a free block may serve a request of `size`.
  [[nodiscard]] bool may_serve(const HeapBlock& block, std::size_t size) const {
    return splits_freely_ || is_close_fit(block.bytes, size);
  }

  /// Adds memory for `request`, and takes its block as take() does. nullptr if there are no
  /// addresses for it, or if limit or device do not allow it; with growth.missing bytes more of
  /// unmapped chunks the next call succeeds. `growth` lasts over all calls for one request.
  /// Throws: CudaError, std::bad_alloc; nothing has changed then.
  [[nodiscard]] virtual HeapBlock* grow(HeapLock& lock, const BlockRequest& request,
                                        ChunkSource source, Growth& growth) = 0;
  /// Takes memory from common free blocks that may lose it, until `bytes` of it have no block.
  /// Returns the bytes taken. Throws: CudaError, std::bad_alloc.
  virtual std::size_t reclaim(HeapLock& lock, std::size_t bytes) = 0;

  /// Bytes by which grow() makes the memory held larger for a block of `size` bytes, at the least.
  [[nodiscard]] virtual std::size_t growth_bytes(std::size_t size) const = 0;
  /// Bytes that may be held beside those, once.
  [[nodiscard]] virtual std::size_t growth_slack() const = 0;
  /// True if reclaim() can release memory to the driver, which may wait for the device.
  [[nodiscard]] virtual bool has_releasable() const = 0;
  /// Bytes of free blocks that reclaim() passes over for the sake of a graph.
  [[nodiscard]] virtual std::size_t captured_bytes() const = 0;

  /// Throws NotSupported if this memory cannot leave its addresses; InvalidArgument if another
  /// process shares it.
  virtual void check_can_release_physical() const = 0;
  /// Takes the physical memory from all addresses, also from live blocks, whose contents are lost.
  /// No work may be in flight. Memory that was released before stays so.
  /// Throws: CudaError, std::bad_alloc.
  virtual void release_physical(HeapLock& lock) = 0;
  /// Maps memory at the released addresses again. False if there is not enough. Throws: CudaError.
  [[nodiscard]] virtual bool restore_physical(HeapLock& lock) = 0;
  /// While released: whole chunks of free blocks lose their claim to be restored.
  virtual void discard_unused() = 0;
  /// Bytes that restore_physical() has to map.
  [[nodiscard]] virtual std::size_t released_bytes() const = 0;

  /// The memory of a live block, for other processes; it stays where it is until unpin().
  [[nodiscard]] virtual BlockExtent pin(const HeapBlock& block) = 0;
  virtual void unpin(const HeapBlock& block) noexcept = 0;

  /// Adds the ranges without gap, with their blocks in address order.
  virtual void describe(HeldSegments& held) const = 0;
  /// Asserts that blocks and memory agree. Returns the bytes of memory that it has, those of chunks
  /// included. No other thread may work on the heap meanwhile.
  virtual std::size_t verify() const noexcept = 0;

  /// True if it serves small blocks only.
  [[nodiscard]] bool is_small() const { return small_; }
  [[nodiscard]] ArenaOwner& owner() const { return owner_; }

  FreeBlocks free;

 protected:
  /// True if a free block of `have` bytes may serve `want` bytes; asked if not `splits_freely`.
  [[nodiscard]] virtual bool is_close_fit(std::size_t /*have*/, std::size_t /*want*/) const {
    return true;
  }
  /// True if a block of `have` bytes is split when `want` bytes of it are taken; likewise.
  [[nodiscard]] virtual bool may_split(std::size_t /*have*/, std::size_t /*want*/) const {
    return true;
  }

  [[nodiscard]] const MemPoolOptions& options() const { return options_; }
  /// True if a graph may use the memory of this free block, which must stay there.
  [[nodiscard]] bool must_stay(const HeapBlock& block) const;

  /// Counts segments that were added or removed.
  void count_segments(std::size_t before, std::size_t after);
  /// Adds a segment without blocks / the next block of the last segment.
  void describe_segment(const void* base, std::uint32_t call_site, HeldSegments& held) const;
  static void describe_block(const HeapBlock& block, HeldSegments& held);

  HeapState& state_;

 private:
  /// Splits `block`, of which `kept` bytes are wanted, after `bytes`. Returns its new right
  /// neighbour; nullptr if the block stays whole.
  [[nodiscard]] HeapBlock* split(HeapBlock& block, std::size_t bytes, std::size_t kept) noexcept {
    if (options_.no_split || block.bytes == bytes) return nullptr;
    if (!splits_freely_ && !may_split(block.bytes, kept)) return nullptr;
    try {
      state_.slab.reserve(1);
    } catch (const std::bad_alloc&) {
      return nullptr;  // the whole block serves as well
    }
    HeapBlock& remainder = state_.slab.take();
    split_block(block, bytes, remainder);
    return &remainder;
  }
  /// The part of a block from its first aligned address on; the part before it becomes free. The
  /// whole block, if it may not be split there.
  [[nodiscard]] HeapBlock& split_head(HeapBlock& block, std::size_t alignment) noexcept;

  ArenaOwner& owner_;
  const MemPoolOptions& options_;  ///< of the owner
  const bool small_;
  const bool splits_freely_;
  const bool serves_captures_;
};

/// An arena of one address range, with chunks mapped at the blocks; see Note [Holes].
[[nodiscard]] std::unique_ptr<Arena> make_vmm_arena(HeapState& state, ArenaOwner& owner);
/// An arena of segments of PyTorch's sizes, of the driver or of the owner's allocator. Their memory
/// cannot leave its addresses.
[[nodiscard]] std::unique_ptr<Arena> make_segment_arena(HeapState& state, ArenaOwner& owner,
                                                        bool small);

}  // namespace gantry::memory
