// An arena of one large address range, with chunks mapped at the blocks.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "memory/source/address_range.hpp"
#include "memory/source/arena.hpp"

namespace gantry::memory {

// Note [Holes]
// Addresses are plentiful, memory is not. The address range of an arena is a multiple of the
// device's memory and is never released. A range without memory is a block too: a hole, with
// neighbours like any block. Growing maps chunks in a hole, next to the free blocks that save most
// memory. Reclaiming unmaps whole chunks from the middle of free blocks and leaves a hole there.
// Fragments of free memory are therefore not lost: their chunks are mapped again where a block
// needs them, without a copy.
class VmmArena final : public Arena {
 public:
  // Free pieces of mapped memory can be mapped elsewhere, so they are not counted.
  VmmArena(HeapState& state, Pool& pool) : Arena(state, pool, false, false) {}

  /// Of the growths that are possible, begins the one that maps the least.
  [[nodiscard]] std::optional<Growth> begin_growth(std::size_t bytes, const StreamBlocks& stream,
                                                   bool coarse) override;
  [[nodiscard]] HeapBlock* finish_growth(HeapLock& lock, const Growth& growth) override;
  void cancel_growth(const Growth& growth) noexcept override;
  [[nodiscard]] bool grows_by_chunks() const override { return true; }
  std::size_t reclaim(HeapLock& lock, std::size_t bytes) override;
  [[nodiscard]] bool may_serve(std::size_t, std::size_t) const override { return true; }
  [[nodiscard]] bool may_split(std::size_t have, std::size_t want) const override {
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

  void check_can_release_physical() const override;
  void release_physical(HeapLock& lock) override;
  [[nodiscard]] bool restore_physical(HeapLock& lock) override;
  void discard_unused() override;
  [[nodiscard]] std::size_t released_bytes() const override;

 private:
  // Chunks that other processes may map. They keep their number while they are pinned.
  struct PinnedExtent {
    std::uint64_t id = 0;
    int pins = 0;
  };

  void open_range(std::size_t needed);
  void free_hole(HeapBlock& block) noexcept;
  [[nodiscard]] bool may_use(const HeapBlock* block, const StreamBlocks& stream) const noexcept;
  [[nodiscard]] Growth find_smallest_growth(std::size_t bytes,
                                            const StreamBlocks& stream) const noexcept;
  void improve(Growth& best, HeapBlock& block, std::size_t bytes,
               const StreamBlocks& stream) const noexcept;
  [[nodiscard]] bool is_roomy() const;
  HeapBlock* join(HeapBlock* left, HeapBlock& middle, HeapBlock* right) noexcept;
  [[nodiscard]] HeapBlock* next_victim(std::size_t bytes, std::pair<std::size_t, std::size_t>& run);
  std::size_t unmap_free(HeapLock& lock, std::size_t bytes, bool released);
  [[nodiscard]] HeapBlock& extract(HeapBlock& whole,
                                   const std::pair<std::size_t, std::size_t>& run);
  [[nodiscard]] std::pair<std::size_t, std::size_t> released_part(
      const HeapBlock& block) const noexcept;
  /// Notes that the block's memory came or goes. Its state changes under the same lock.
  void record(TraceAction action, const HeapBlock& block) const noexcept;
  /// Brings the statistics up to date after the mapping changed.
  void recount();

  std::unique_ptr<AddressRange> range_;
  HeapBlock* first_ = nullptr;  ///< the chain in address order; covers the range
  TlsfIndex holes_;
  std::map<std::pair<std::size_t, std::size_t>, PinnedExtent> pinned_;  ///< by begin and end
  int pending_mappings_ = 0;  ///< growths and unmappings in progress
  std::size_t counted_runs_ = 0;
  std::map<std::size_t, std::size_t> released_;  ///< runs to map again: begin, end
};

}  // namespace gantry::memory
