#include "memory/arenas/arena.hpp"

#include <utility>

#include "memory/stats/counters.hpp"

namespace gantry::memory {
namespace {

BlockState state_of(BlockUse use) {
  if (use == BlockUse::live) return BlockState::active_allocated;
  const bool is_freed = use == BlockUse::pending || use == BlockUse::limbo;
  return is_freed ? BlockState::active_pending_free : BlockState::inactive;
}

}  // namespace

constinit thread_local HeapState::ChunkTransfer* HeapState::ChunkTransfer::innermost = nullptr;

constinit std::atomic<ExportTracker*> export_tracker{nullptr};

std::uint64_t new_extent_id() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

Arena::Arena(HeapState& state, ArenaOwner& owner, bool small, bool splits_freely)
    : free(state.slab,
           splits_freely ? SplitCounter{}
                         : SplitCounter{&state.stats.inactive_split,
                                        &state.stats.inactive_split_bytes, small},
           !owner.serves_captures, &owner.options.no_split),
      state_(state),
      owner_(owner),
      options_(owner.options),
      small_(small),
      splits_freely_(splits_freely),
      serves_captures_(owner.serves_captures) {}

bool Arena::must_stay(const HeapBlock& block) const { return block.captured && owner_.is_pinned(); }

HeapBlock& Arena::split_head(HeapBlock& block, std::size_t alignment) noexcept {
  const std::size_t head = padding_of(block.data, alignment);
  if (head == 0) return block;
  HeapBlock* aligned = split(block, head, block.bytes - head);
  if (aligned == nullptr) return block;
  aligned->change(BlockUse::unused, BlockUse::in_transition);
  free.insert(block);
  return *aligned;
}

void Arena::count_segments(std::size_t before, std::size_t after) {
  if (after > before) {
    increase(state_.stats.segment, small_, after - before);
  } else if (after < before) {
    decrease(state_.stats.segment, small_, before - after);
  }
}

void Arena::describe_segment(const void* base, std::uint32_t call_site, HeldSegments& held) const {
  SegmentInfo& segment = held.segments.emplace_back();
  segment.device = state_.device;
  segment.address = reinterpret_cast<std::uintptr_t>(base);
  segment.small = small_;
  const auto pool = static_cast<std::int64_t>(owner_.id);
  segment.pool_id =
      owner_.serves_captures ? std::pair{pool, std::int64_t{0}} : std::pair{std::int64_t{0}, pool};
  held.call_sites.push_back(call_site);
}

void Arena::describe_block(const HeapBlock& block, HeldSegments& held) {
  SegmentInfo& segment = held.segments.back();
  BlockInfo& info = segment.blocks.emplace_back();
  std::uint32_t call_site = 0;
  info.address = reinterpret_cast<std::uintptr_t>(block.data);
  info.bytes = block.bytes;
  info.state = state_of(block.use.load(std::memory_order_relaxed));
  info.stream = block.stream != nullptr ? block.stream->clock.id() : 0;
  segment.total_bytes += info.bytes;
  if (info.state != BlockState::inactive) {
    info.requested = block.requested.load(std::memory_order_relaxed);
    call_site = block.call_site.load(std::memory_order_relaxed);
    segment.active_bytes += info.bytes;
    segment.requested_bytes += info.requested;
  }
  if (info.state == BlockState::active_allocated) segment.allocated_bytes += info.bytes;
  held.call_sites.push_back(call_site);
}

}  // namespace gantry::memory
