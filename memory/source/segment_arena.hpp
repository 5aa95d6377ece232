// An arena of separate driver allocations: for machines without virtual memory calls.
#pragma once

#include <list>
#include <optional>

#include "memory/source/arena.hpp"

namespace gantry::memory {

/// One driver allocation, cut into blocks.
struct Segment {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  HeapBlock* first = nullptr;
  std::uint32_t call_site = 0;             ///< who made it necessary, if history was recorded then
  int pins = 0;                            ///< blocks that other processes know
  std::uint64_t extent_id = 0;             ///< 0: nobody ever asked
  std::optional<NativeMemoryHandle> name;  ///< for other processes, once asked for
};

/// Segments of PyTorch's sizes; see memory/heap/size_policy.hpp. A segment goes back to the driver
/// whole.
class SegmentArena final : public Arena {
 public:
  SegmentArena(HeapCore& core, Pool& pool, bool small) : Arena(core, pool, small, true) {}

  [[nodiscard]] HeapBlock* grow(HeapLock& lock, std::size_t bytes, StreamBlocks& stream,
                                const Harvest& harvest) override;
  std::size_t harvest(HeapLock& lock, std::size_t bytes) override;
  [[nodiscard]] bool may_serve(std::size_t have, std::size_t want) const override;
  [[nodiscard]] bool may_cut(std::size_t have, std::size_t want) const override;
  void describe(HeldSegments& held) const override;

  [[nodiscard]] BlockExtent pin(HeapLock& lock, const HeapBlock& block) override;
  void unpin(const HeapBlock& block) noexcept override;

 private:
  using Segments = std::list<Segment>;

  [[nodiscard]] Segment& segment_of(const HeapBlock& block);

  void add(std::byte* base, std::size_t bytes, HeapBlock& block, Segments& made);
  void forget(const Segment& segment) noexcept;
  /// Notes that a segment appeared in the list or left it, under the same lock.
  void record(TraceAction action, const Segment& segment, std::uint32_t call_site) const noexcept;

  Segments segments_;
  std::size_t bytes_ = 0;
};

}  // namespace gantry::memory
