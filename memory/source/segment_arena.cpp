#include "memory/source/segment_arena.hpp"

#include <algorithm>
#include <utility>

#include "memory/heap/poison.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {

// What was harvested is the driver's again, so there is nothing to ask for.
HeapBlock* SegmentArena::grow(HeapLock& lock, std::size_t bytes, StreamBlocks& /*stream*/,
                              const Harvest& /*harvest*/) {
  const std::size_t size = gantry::memory::segment_bytes(bytes);
  const std::size_t limit = core_.limit();
  const std::size_t held = core_.segment_bytes + core_.chunks.held();
  if (size > limit || held > limit - size) return nullptr;
  core_.slab.reserve(1);
  Segments made(1);
  core_.segment_bytes += size;  // taken before the lock is let go of, so the limit holds
  HeapBlock& block = core_.slab.take();
  const HeapCore::Move move(core_);
  lock.unlock();
  std::byte* base = nullptr;
  try {
    base = static_cast<std::byte*>(driver().allocate(core_.device, size));
  } catch (...) {
    lock.lock();
    core_.segment_bytes -= size;
    core_.slab.give_back(block);
    throw;
  }
  if (base != nullptr && poisons_device_memory()) poison_now(base, size);
  const std::uint32_t call_site = segment_call_site(TraceAction::segment_alloc);
  lock.lock();
  if (base == nullptr) {
    core_.segment_bytes -= size;
    core_.slab.give_back(block);
    return nullptr;
  }
  made.front().call_site = call_site;
  add(base, size, block, made);
  record(TraceAction::segment_alloc, segments_.front(), call_site);
  return &block;
}

void SegmentArena::add(std::byte* base, std::size_t bytes, HeapBlock& block, Segments& made) {
  block.data = base;
  block.bytes = bytes;
  block.arena = this;
  block.previous = nullptr;
  block.stream = nullptr;
  block.use.store(BlockUse::moving, std::memory_order_relaxed);
  Segment& segment = made.front();
  segment.base = base;
  segment.bytes = bytes;
  segment.first = &block;
  segments_.splice(segments_.begin(), made);
  bytes_ += bytes;
  if (is_small()) core_.small_bytes += bytes;
  ++core_.segments_made;
  increase(core_.stats.segment, is_small(), 1);
  if (bytes >= core_.config.max_split_bytes) increase(core_.stats.oversize_segments, 1);
  core_.refresh_reserved();
}

void SegmentArena::forget(const Segment& segment) noexcept {
  bytes_ -= segment.bytes;
  core_.segment_bytes -= segment.bytes;
  if (is_small()) core_.small_bytes -= segment.bytes;
  ++core_.segments_freed;
  decrease(core_.stats.segment, is_small(), 1);
  if (segment.bytes >= core_.config.max_split_bytes) decrease(core_.stats.oversize_segments, 1);
  core_.slab.give_back(*segment.first);
  core_.refresh_reserved();
}

void SegmentArena::record(TraceAction action, const Segment& segment,
                          std::uint32_t call_site) const noexcept {
  record_trace(core_.device, action, reinterpret_cast<std::uintptr_t>(segment.base), segment.bytes,
               0, call_site);
}

std::size_t SegmentArena::harvest(HeapLock& lock, std::size_t bytes) {
  std::size_t taken = 0;
  // Another thread may change the list while the lock is let go of: start anew after each segment.
  for (auto it = segments_.begin(); it != segments_.end() && taken < bytes;) {
    HeapBlock& block = *it->first;
    const bool unused = block.use.load(std::memory_order_relaxed) == BlockUse::free &&
                        block.next == nullptr && block.stream == nullptr && it->pins == 0;
    if (!unused) {
      ++it;
      continue;
    }
    free.remove(block);
    // It is gone for snapshots from here on: as soon as the driver has it, another thread may get
    // its addresses for a new segment. It counts until then, or others would ask in vain.
    Segments gone;
    gone.splice(gone.begin(), segments_, it);
    const Segment& segment = gone.front();
    record(TraceAction::segment_free, segment, segment_call_site(TraceAction::segment_free));
    const HeapCore::Move move(core_);
    lock.unlock();
    if (poisons_device_memory()) unpoison_now(segment.base, segment.bytes);
    try {
      driver().deallocate(core_.device, segment.base);
    } catch (...) {
      if (poisons_device_memory()) poison_now(segment.base, segment.bytes);
      lock.lock();
      record(TraceAction::segment_alloc, segment, segment.call_site);
      segments_.splice(segments_.begin(), gone);
      free.insert(block);
      throw;
    }
    lock.lock();
    taken += segment.bytes;
    forget(segment);
    it = segments_.begin();
  }
  return taken;
}

bool SegmentArena::may_serve(std::size_t have, std::size_t want) const {
  const std::size_t most = core_.config.max_split_bytes;
  return want < most ? have < most : have - want < kLargeSegmentBytes;
}

bool SegmentArena::may_cut(std::size_t have, std::size_t want) const {
  return should_split(have, want, is_small(), core_.config.max_split_bytes);
}

void SegmentArena::describe(HeldSegments& held) const {
  for (const Segment& segment : segments_) {
    describe_segment(segment.base, segment.call_site, held);
    for (const HeapBlock* block = segment.first; block != nullptr; block = block->next) {
      describe_block(*block, held);
    }
  }
}

Segment& SegmentArena::segment_of(const HeapBlock& block) {
  return *std::ranges::find_if(segments_, [&block](const Segment& segment) {
    return block.data >= segment.base && block.data < segment.base + segment.bytes;
  });
}

BlockExtent SegmentArena::pin(HeapLock&, const HeapBlock& block) {
  Segment& segment = segment_of(block);
  if (!segment.name) {
    segment.name = driver().export_memory(segment.base);
    segment.extent_id = new_extent_id();
  }
  ++segment.pins;
  BlockExtent extent;
  extent.extent_id = segment.extent_id;
  extent.offset = static_cast<std::size_t>(block.data - segment.base);
  extent.segment = segment.name;
  extent.bytes = segment.bytes;
  return extent;
}

void SegmentArena::unpin(const HeapBlock& block) noexcept { --segment_of(block).pins; }

}  // namespace gantry::memory
