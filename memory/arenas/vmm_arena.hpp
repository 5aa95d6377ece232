// An arena of one large address range, with chunks mapped at the blocks.
#pragma once

#include <memory>

#include "memory/arenas/address_range.hpp"
#include "memory/arenas/arena.hpp"
#include "memory/blocks/block_chain.hpp"

namespace gantry::memory {

/// Blocks in an address range to which chunks are mapped where blocks need them; see Note [Holes].
class VmmArena final : public Arena {
 public:
  VmmArena(HeapState& state, ArenaOwner& owner) : Arena(state, owner, false, true) {}

  [[nodiscard]] HeapBlock* grow(HeapLock& lock, const BlockRequest& request, ChunkSource source,
                                Growth& growth) override;
  std::size_t reclaim(HeapLock& lock, std::size_t bytes) override;
  void describe(HeldSegments& held) const override;

  void check_can_release_physical() const override;
  [[nodiscard]] std::size_t growth_bytes(std::size_t size) const override { return size; }
  [[nodiscard]] std::size_t growth_slack() const override {
    return is_roomy() ? kCoarseChunkBytes : 0;
  }
  [[nodiscard]] bool has_releasable() const override { return false; }
  [[nodiscard]] std::size_t captured_bytes() const override;
  void release_physical(HeapLock& lock) override;
  [[nodiscard]] bool restore_physical(HeapLock& lock) override;
  void discard_unused() override;
  [[nodiscard]] std::size_t released_bytes() const override { return released_.bytes(); }
  std::size_t verify() const noexcept override;

  [[nodiscard]] BlockExtent pin(const HeapBlock& block) override;
  void unpin(const HeapBlock& block) noexcept override;

 private:
  void open_range(std::size_t needed);
  [[nodiscard]] Run run_of(const HeapBlock& block) const noexcept;
  [[nodiscard]] bool is_roomy() const;
  /// The first run of `bytes` of whole chunks in a free block, or its longest one; empty if the
  /// block must stay.
  [[nodiscard]] Run whole_chunks(const HeapBlock& block, std::size_t bytes) const;
  [[nodiscard]] HeapBlock* next_victim(std::size_t bytes, Run& chunks);
  [[nodiscard]] HeapBlock* smallest_victim(std::size_t enough, std::size_t bytes, Run& chunks);
  [[nodiscard]] HeapBlock* longest_victim(std::size_t bytes, int most_visits, Run& chunks);
  [[nodiscard]] HeapBlock* oldest_victim(std::size_t bytes, Run& chunks);
  std::size_t unmap_free(HeapLock& lock, std::size_t bytes, bool released);
  /// Records that the block's memory comes or goes. Its state changes under the same lock.
  void record(TraceAction action, const HeapBlock& block) const noexcept;
  /// Counts the mapped runs as segments, after the mapping changed.
  void count_runs();

  std::unique_ptr<AddressRange> range_;  ///< made by the first growth
  BlockChain blocks_{state_.slab, free};
  int unmappings_ = 0;  ///< in progress
  std::size_t counted_runs_ = 0;
  RunSet released_;  ///< to be restored
};

}  // namespace gantry::memory
