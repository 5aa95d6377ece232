// An arena of one large address range, with chunks mapped where blocks are.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "memory/source/address_range.hpp"
#include "memory/source/arena.hpp"

namespace gantry::memory {

// Note [Holes]
// Addresses are plenty, memory is not. The range of an arena is a multiple of the device's memory
// and is kept for good; what has no memory behind it is a block too, a hole, between its neighbours
// in the chain. Growing maps chunks in a hole, beside free blocks that save most; harvesting unmaps
// whole chunks from the middle of free blocks, which leaves a hole there. So fragments of free
// memory are not stuck where they are: their chunks move to where a block has to be, without a
// copy.
class VmmArena final : public Arena {
 public:
  // Pieces of mapped memory can be mapped elsewhere, so they are not stuck and not counted.
  VmmArena(HeapCore& core, Pool& pool, bool small) : Arena(core, pool, small, false) {}

  [[nodiscard]] HeapBlock* grow(HeapLock& lock, std::size_t bytes, StreamBlocks& stream,
                                const Harvest& harvest) override;
  std::size_t harvest(HeapLock& lock, std::size_t bytes) override;
  [[nodiscard]] bool may_serve(std::size_t, std::size_t) const override { return true; }
  [[nodiscard]] bool may_cut(std::size_t have, std::size_t want) const override {
    return have - want >= kBlockGrain;
  }
  void describe(HeldSegments& held) const override;

  [[nodiscard]] BlockExtent pin(HeapLock& lock, const HeapBlock& block) override;
  void unpin(const HeapBlock& block) noexcept override;

  /// The range; made by the first growth.
  [[nodiscard]] AddressRange& range() const { return *range_; }
  /// Offset of a block in the range.
  [[nodiscard]] std::size_t offset_of(const std::byte* address) const {
    return static_cast<std::size_t>(address - range_->base());
  }

  /// Takes all memory from behind the addresses, also from live blocks, whose contents are lost.
  /// No work may be in flight. What was parked before stays so. Throws: CudaError.
  void park(HeapLock& lock);
  /// Puts memory behind the addresses of park() again. False if there is not enough.
  [[nodiscard]] bool unpark(HeapLock& lock);
  /// While parked: whole chunks of free blocks that were parked stay without memory for good.
  void forget_unused();
  [[nodiscard]] bool is_parked() const { return !parked_.empty(); }
  [[nodiscard]] std::size_t parked_bytes() const;
  [[nodiscard]] bool is_pinned() const { return !pinned_.empty(); }

 private:
  // Chunks that other processes know: while somebody does, they keep their number.
  struct PinnedExtent {
    std::uint64_t id = 0;
    int pins = 0;
  };

  // Where memory is to be mapped for a block, and the free blocks beside it that become part of it.
  struct Place {
    HeapBlock* left = nullptr;
    HeapBlock* hole = nullptr;
    HeapBlock* right = nullptr;
    std::size_t bytes = 0;    ///< to be mapped
    bool at_the_end = false;  ///< of the hole, not at its beginning
  };

  void open_range(std::size_t needed);
  void return_hole(HeapBlock& block) noexcept;
  [[nodiscard]] bool may_use(const HeapBlock* block, const StreamBlocks& stream) const noexcept;
  [[nodiscard]] Place find_place(std::size_t bytes, const StreamBlocks& stream) const noexcept;
  void improve(Place& best, HeapBlock& block, std::size_t bytes,
               const StreamBlocks& stream) const noexcept;
  [[nodiscard]] HeapBlock* grow_at(HeapLock& lock, const Place& place, bool coarse,
                                   const Harvest& harvest);
  [[nodiscard]] bool is_roomy() const;
  HeapBlock* join(HeapBlock* left, HeapBlock& middle, HeapBlock* right) noexcept;
  [[nodiscard]] HeapBlock* next_victim(std::size_t bytes, std::pair<std::size_t, std::size_t>& run);
  std::size_t unmap_free(HeapLock& lock, std::size_t bytes, bool parked);
  [[nodiscard]] HeapBlock& cut_out(HeapBlock& whole,
                                   const std::pair<std::size_t, std::size_t>& run);
  [[nodiscard]] std::pair<std::size_t, std::size_t> parked_part(
      const HeapBlock& block) const noexcept;
  /// Notes that the block's memory came or goes. Its state changes under the same lock.
  void record(TraceAction action, const HeapBlock& block) const noexcept;
  /// Brings the statistics up to date after the mapping changed.
  void recount();

  std::unique_ptr<AddressRange> range_;
  HeapBlock* first_ = nullptr;  ///< the chain in address order; covers the range
  TlsfIndex holes_;
  std::map<std::pair<std::size_t, std::size_t>, PinnedExtent> pinned_;  ///< by begin and end
  int movements_ = 0;  ///< threads that map or unmap here without the lock
  std::size_t counted_bytes_ = 0;
  std::size_t counted_runs_ = 0;
  std::map<std::size_t, std::size_t> parked_;  ///< runs to map again: where they begin and end
};

}  // namespace gantry::memory
