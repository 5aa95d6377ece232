// An arena of separate allocations: of drivers without virtual memory calls, or of an allocator.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "memory/arenas/arena.hpp"

namespace gantry::memory {

/// One allocation, split into blocks.
struct Segment {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  HeapBlock* first = nullptr;
  std::uint32_t call_site = 0;  ///< of the allocation that added it, if history was recorded
  int pins = 0;                 ///< blocks exported to other processes
  std::uint64_t extent_id = 0;  ///< 0: never exported
  std::optional<NativeMemoryHandle> handle;  ///< for other processes, once exported
  std::shared_ptr<Allocator> source{};       ///< nullptr: the driver
  Block block{};                             ///< of `source`
};

/// Segments of PyTorch's sizes; see memory/policy/size_policy.hpp. A segment is released as a
/// whole. Its memory cannot leave its addresses.
class SegmentArena final : public Arena {
 public:
  SegmentArena(HeapState& state, ArenaOwner& owner, bool small)
      : Arena(state, owner, small, false) {}

  /// Adds a segment. Unmapped chunks do not help, so growth.missing stays 0.
  [[nodiscard]] HeapBlock* grow(HeapLock& lock, const BlockRequest& request, ChunkSource source,
                                Growth& growth) override;
  std::size_t reclaim(HeapLock& lock, std::size_t bytes) override;
  [[nodiscard]] std::size_t growth_bytes(std::size_t size) const override {
    return segment_bytes(size);
  }
  [[nodiscard]] std::size_t growth_slack() const override { return kLargeSegmentBytes; }
  [[nodiscard]] bool has_releasable() const override;
  [[nodiscard]] std::size_t captured_bytes() const override;
  void describe(HeldSegments& held) const override;

  void check_can_release_physical() const override;
  void release_physical(HeapLock&) override { check_can_release_physical(); }
  [[nodiscard]] bool restore_physical(HeapLock&) override { return true; }
  void discard_unused() override {}
  [[nodiscard]] std::size_t released_bytes() const override { return 0; }
  std::size_t verify() const noexcept override;

  [[nodiscard]] BlockExtent pin(const HeapBlock& block) override;
  void unpin(const HeapBlock& block) noexcept override;

 private:
  using Segments = std::list<Segment>;

  [[nodiscard]] bool is_close_fit(std::size_t have, std::size_t want) const override;
  [[nodiscard]] bool may_split(std::size_t have, std::size_t want) const override;
  [[nodiscard]] Segment& segment_of(const HeapBlock& block);
  /// True if the whole segment is a free block that no stream and no graph uses.
  [[nodiscard]] bool is_unused(const Segment& segment) const;
  /// Asks the source for the segment's memory; its base stays nullptr if there is none.
  void allocate(Segment& segment) const;
  void deallocate(Segment& segment) const;
  /// Adds a new segment as one free block.
  HeapBlock& add(Segments& made);
  void count_released(const Segment& segment) noexcept;
  /// Records that a segment was added to the list or removed, under the same lock.
  void record(TraceAction action, const Segment& segment, std::uint32_t call_site) const noexcept;

  Segments segments_;
};

}  // namespace gantry::memory
