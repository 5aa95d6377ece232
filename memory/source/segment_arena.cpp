#include "memory/source/segment_arena.hpp"

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>

#include "memory/heap/poison.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {

std::optional<Growth> SegmentArena::begin_growth(std::size_t bytes, const StreamBlocks& /*stream*/,
                                                 bool coarse) {
  const std::size_t size = gantry::memory::segment_bytes(bytes);
  const std::size_t limit = state_.limit();
  const std::size_t held = state_.segment_bytes + state_.chunks.held();
  if (coarse || size > limit || held > limit - size) return std::nullopt;
  state_.slab.reserve(1);
  state_.segment_bytes += size;  // before the lock is released, so that the limit holds
  return Growth{.hole = &state_.slab.take(), .bytes = size};
}

void SegmentArena::cancel_growth(const Growth& growth) noexcept {
  state_.segment_bytes -= growth.bytes;
  state_.slab.recycle(*growth.hole);
}

HeapBlock* SegmentArena::finish_growth(HeapLock& lock, const Growth& growth) {
  std::byte* base = nullptr;
  std::uint32_t call_site = 0;
  Segments made;
  lock.unlock();
  try {
    made.resize(1);
    base = static_cast<std::byte*>(driver().allocate(state_.device, growth.bytes));
  } catch (...) {
    lock.lock();
    cancel_growth(growth);
    throw;
  }
  if (base != nullptr && poisons_device_memory()) poison_now(base, growth.bytes);
  if (base != nullptr) call_site = segment_call_site(TraceAction::segment_alloc);
  lock.lock();
  if (base == nullptr) {
    cancel_growth(growth);
    return nullptr;
  }
  made.front().call_site = call_site;
  add(base, growth.bytes, *growth.hole, made);
  record(TraceAction::segment_alloc, segments_.front(), call_site);
  return growth.hole;
}

void SegmentArena::add(std::byte* base, std::size_t bytes, HeapBlock& block, Segments& made) {
  block.data = base;
  block.bytes = bytes;
  block.arena = this;
  block.previous = nullptr;
  block.stream = nullptr;
  block.use.store(BlockUse::in_transition, std::memory_order_relaxed);
  Segment& segment = made.front();
  segment.base = base;
  segment.bytes = bytes;
  segment.first = &block;
  segments_.splice(segments_.begin(), made);
  if (is_small()) state_.small_bytes += bytes;
  ++state_.segments_made;
  increase(state_.stats.segment, is_small(), 1);
  if (bytes >= state_.config.max_split_bytes) increase(state_.stats.oversize_segments, 1);
  state_.refresh_reserved();
}

void SegmentArena::count_released(const Segment& segment) noexcept {
  state_.segment_bytes -= segment.bytes;
  if (is_small()) state_.small_bytes -= segment.bytes;
  ++state_.segments_freed;
  decrease(state_.stats.segment, is_small(), 1);
  if (segment.bytes >= state_.config.max_split_bytes) decrease(state_.stats.oversize_segments, 1);
  state_.slab.recycle(*segment.first);
  state_.refresh_reserved();
}

void SegmentArena::record(TraceAction action, const Segment& segment,
                          std::uint32_t call_site) const noexcept {
  record_trace(state_.device, action, reinterpret_cast<std::uintptr_t>(segment.base), segment.bytes,
               0, call_site);
}

std::size_t SegmentArena::reclaim(HeapLock& lock, std::size_t bytes) {
  std::size_t taken = 0;
  // Another thread may change the list while the lock is released: start anew after each segment.
  for (auto it = segments_.begin(); it != segments_.end() && taken < bytes;) {
    HeapBlock& block = *it->first;
    const bool unused = block.use.load(std::memory_order_relaxed) == BlockUse::free &&
                        block.next == nullptr && block.stream == nullptr && it->pins == 0;
    if (!unused) {
      ++it;
      continue;
    }
    free.remove(block);
    // Snapshots do not show it from here on: as soon as the driver has it, another thread may get
    // its addresses for a new segment. Its bytes count until then, because the driver has not
    // freed them yet.
    Segments removed;
    removed.splice(removed.begin(), segments_, it);
    const Segment& segment = removed.front();
    record(TraceAction::segment_free, segment, segment_call_site(TraceAction::segment_free));
    const HeapState::ChunkTransfer transfer(state_);
    lock.unlock();
    if (poisons_device_memory()) unpoison_now(segment.base, segment.bytes);
    try {
      driver().deallocate(state_.device, segment.base);
    } catch (...) {
      if (poisons_device_memory()) poison_now(segment.base, segment.bytes);
      lock.lock();
      record(TraceAction::segment_alloc, segment, segment.call_site);
      segments_.splice(segments_.begin(), removed);
      free.insert(block);
      throw;
    }
    lock.lock();
    taken += segment.bytes;
    count_released(segment);
    it = segments_.begin();
  }
  return taken;
}

bool SegmentArena::may_serve(std::size_t have, std::size_t want) const {
  const std::size_t most = state_.config.max_split_bytes;
  return want < most ? have < most : have - want < kLargeSegmentBytes;
}

bool SegmentArena::may_split(std::size_t have, std::size_t want) const {
  return should_split(have, want, is_small(), state_.config.max_split_bytes);
}

void SegmentArena::describe(HeldSegments& held) const {
  for (const Segment& segment : segments_) {
    describe_segment(segment.base, segment.call_site, held);
    for (const HeapBlock* block = segment.first; block != nullptr; block = block->next) {
      describe_block(*block, held);
    }
  }
}

void SegmentArena::check_can_release_physical() const {
  throw NotSupported(
      "MemPool::release_physical: expected backend vmm, but got native, whose memory cannot leave "
      "its addresses",
      Device::cuda(state_.device).str());
}

Segment& SegmentArena::segment_of(const HeapBlock& block) {
  return *std::ranges::find_if(segments_, [&block](const Segment& segment) {
    return block.data >= segment.base && block.data < segment.base + segment.bytes;
  });
}

BlockExtent SegmentArena::pin(HeapLock&, const HeapBlock& block) {
  Segment& segment = segment_of(block);
  if (!segment.handle) {
    segment.handle = driver().export_memory(segment.base);
    segment.extent_id = new_extent_id();
  }
  ++segment.pins;
  BlockExtent extent;
  extent.extent_id = segment.extent_id;
  extent.offset = static_cast<std::size_t>(block.data - segment.base);
  extent.segment = segment.handle;
  extent.bytes = segment.bytes;
  return extent;
}

void SegmentArena::unpin(const HeapBlock& block) noexcept { --segment_of(block).pins; }

}  // namespace gantry::memory
