// An arena of separate allocations: of drivers without virtual memory calls, or of an allocator.
#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "device/platform/poison.hpp"
#include "memory/arenas/arena.hpp"
#include "memory/history/history.hpp"
#include "memory/policy/active_pool.hpp"
#include "memory/stats/counters.hpp"

namespace gantry::memory {
namespace {

// One allocation, split into blocks.
struct Segment {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  HeapBlock* first = nullptr;
  std::uint32_t call_site = 0;  // of the allocation that added it, if history was recorded
  int pins = 0;                 // blocks exported to other processes
  std::uint64_t extent_id = 0;  // 0: never exported
  std::optional<NativeMemoryHandle> handle;  // for other processes, once exported
  std::shared_ptr<Allocator> source{};       // nullptr: the driver
  Block block{};                             // of `source`
};

// Segments of PyTorch's sizes; see memory/policy/size_policy.hpp. A segment is released as a whole.
// Its memory cannot leave its addresses.
class SegmentArena final : public Arena {
 public:
  SegmentArena(HeapState& state, ArenaOwner& owner, bool small)
      : Arena(state, owner, small, false) {}

  // Adds a segment. Unmapped chunks do not help, so growth.missing stays 0.
  [[nodiscard]] HeapBlock* grow(HeapLock& lock, const BlockRequest& request, ChunkSource source,
                                Growth& growth) override {
    const std::size_t limit = state_.limit();
    if (source == ChunkSource::unmapped || request.size > limit) return nullptr;  // or it overflows
    const std::size_t bytes =
        growth.segment_bytes != 0 ? growth.segment_bytes : segment_bytes(request.size);
    GANTRY_ASSERT(bytes >= request.size, "a segment is made that is smaller than its block");
    if (bytes > limit || state_.reserved() > limit - bytes) return nullptr;
    Segments made(1);
    Segment& segment = made.front();
    segment.bytes = bytes;
    state_.slab.reserve(1);
    segment.first = &state_.slab.take();
    state_.segment_bytes += bytes;  // before the lock is released, so that the limit holds
    const auto cancel = [&] {
      state_.segment_bytes -= bytes;
      state_.slab.recycle(*segment.first);
    };
    try {
      const HeapState::ChunkTransfer transfer(state_, lock);
      allocate(segment);
      if (segment.base != nullptr) {
        if (poisons_device_memory()) poison_now(segment.base, bytes);
        segment.call_site = capture_call_site(TraceAction::segment_alloc);
      }
    } catch (...) {
      cancel();
      throw;
    }
    if (segment.base != nullptr) return &take(add(made), request);
    cancel();
    return nullptr;
  }

  std::size_t reclaim(HeapLock& lock, std::size_t bytes) override {
    std::size_t taken = 0;
    // Another thread may change the list while the lock is released: start anew after each segment.
    for (auto it = segments_.begin(); it != segments_.end() && taken < bytes;) {
      HeapBlock& block = *it->first;
      if (!is_unused(*it)) {
        ++it;
        continue;
      }
      GANTRY_ASSERT(block.data == it->base && block.bytes == it->bytes,
                    "an unused segment is not one block");
      free.remove(block);
      // Snapshots do not show it from here on: as soon as the driver has it, another thread may get
      // its addresses for a new segment. Its bytes count until then, because the driver has not
      // freed them yet.
      Segments removed;
      removed.splice(removed.begin(), segments_, it);
      Segment& segment = removed.front();
      record(TraceAction::segment_free, segment, capture_call_site(TraceAction::segment_free));
      try {
        const HeapState::ChunkTransfer transfer(state_, lock);
        if (poisons_device_memory()) unpoison_now(segment.base, segment.bytes);
        deallocate(segment);
      } catch (...) {
        if (poisons_device_memory()) poison_now(segment.base, segment.bytes);
        record(TraceAction::segment_alloc, segment, segment.call_site);
        segments_.splice(segments_.begin(), removed);
        free.insert(block);
        throw;
      }
      taken += segment.bytes;
      count_released(segment);
      it = segments_.begin();
    }
    return taken;
  }

  [[nodiscard]] std::size_t growth_bytes(std::size_t size) const override {
    return segment_bytes(size);
  }
  [[nodiscard]] std::size_t growth_slack() const override { return kLargeSegmentBytes; }
  [[nodiscard]] bool has_releasable() const override {
    return std::ranges::any_of(segments_,
                               [this](const Segment& segment) { return is_unused(segment); });
  }
  [[nodiscard]] std::size_t captured_bytes() const override {
    std::size_t bytes = 0;
    for (const Segment& segment : segments_) {
      if (is_unused(segment)) continue;
      for (const HeapBlock* block = segment.first; block != nullptr; block = block->next) {
        if (block->is(BlockUse::free)) bytes += block->bytes;
      }
    }
    return bytes;
  }

  void describe(HeldSegments& held) const override {
    for (const Segment& segment : segments_) {
      describe_segment(segment.base, segment.call_site, held);
      for (const HeapBlock* block = segment.first; block != nullptr; block = block->next) {
        describe_block(*block, held);
      }
    }
  }

  void check_can_release_physical() const override {
    const Allocator* const source = options().allocator.get();
    const std::string got =
        source == nullptr
            ? "backend vmm, but got native, whose memory"
            : "memory of the driver, but got that of allocator '" + source->name() + "', which";
    throw NotSupported("MemPool::release_physical: expected " + got + " cannot leave its addresses",
                       Device::cuda(state_.device).str());
  }
  void release_physical(HeapLock& /*lock*/) override { check_can_release_physical(); }
  [[nodiscard]] bool restore_physical(HeapLock& /*lock*/) override { return true; }
  void discard_unused() override {}
  [[nodiscard]] std::size_t released_bytes() const override { return 0; }

  [[nodiscard]] BlockExtent pin(const HeapBlock& block) override {
    Segment& segment = segment_of(block);
    if (segment.source != nullptr) {
      throw NotSupported("export_ipc: expected memory of the driver, but got that of allocator '" +
                             segment.source->name() + "' of a MemPool",
                         Device::cuda(state_.device).str());
    }
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
  void unpin(const HeapBlock& block) noexcept override {
    Segment& segment = segment_of(block);
    GANTRY_ASSERT(segment.pins > 0, "a segment is unpinned more often than it was pinned");
    --segment.pins;
  }

  std::size_t verify() const noexcept override {
    free.verify();
    std::size_t held = 0;
    for (const Segment& segment : segments_) {
      const std::byte* end = segment.base;
      for (const HeapBlock* block = segment.first; block != nullptr; block = block->next) {
        GANTRY_ASSERT(block->arena == this, "a segment has a block of another arena");
        GANTRY_ASSERT(block->data == end, "a segment has a gap between its blocks");
        end = block->end();
      }
      GANTRY_ASSERT(end == segment.base + segment.bytes, "the blocks of a segment do not fill it");
      held += segment.bytes;
    }
    return held;
  }

 private:
  using Segments = std::list<Segment>;

  // A block of the size of a new segment is a close fit in any case.
  [[nodiscard]] bool is_close_fit(std::size_t have, std::size_t want) const override {
    const std::size_t most = state_.config.max_split_bytes;
    if (have <= segment_bytes(want)) return true;
    return want < most ? have < most : have - want < kLargeSegmentBytes;
  }
  [[nodiscard]] bool may_split(std::size_t have, std::size_t want) const override {
    return should_split(have, want, is_small(), state_.config.max_split_bytes);
  }

  [[nodiscard]] Segment& segment_of(const HeapBlock& block) {
    const auto found = std::ranges::find_if(segments_, [&block](const Segment& segment) {
      return block.data >= segment.base && block.data < segment.base + segment.bytes;
    });
    GANTRY_ASSERT(found != segments_.end(), "a block is in no segment of its arena");
    return *found;
  }
  // True if the whole segment is a free block that no stream and no graph uses.
  [[nodiscard]] bool is_unused(const Segment& segment) const {
    const HeapBlock& block = *segment.first;
    return block.is(BlockUse::free) && block.next == nullptr && block.stream == nullptr &&
           segment.pins == 0 && !must_stay(block);
  }

  // Asks the source for the segment's memory; its base stays nullptr if there is none.
  void allocate(Segment& segment) const {
    segment.source = options().allocator;
    if (segment.source == nullptr) {
      segment.base = static_cast<std::byte*>(driver().allocate(state_.device, segment.bytes));
      return;
    }
    const Device device = Device::cuda(state_.device);
    const NoActivePool scope;
    try {
      segment.block =
          segment.source->allocate(Stream::default_stream(device), segment.bytes, kBlockGrain);
    } catch (const OutOfMemoryError&) {
      return;  // recovery goes on, and reports the whole breakdown
    }
    if (segment.block.data == nullptr) return;
    if (segment.block.device != device) {
      const Device other = segment.block.device;
      segment.source->deallocate(segment.block);
      throw InvalidArgument("MemPool: expected memory of " + device.str() +
                                " from the pool's allocator '" + segment.source->name() +
                                "', but got memory of " + other.str(),
                            device.str());
    }
    segment.base = static_cast<std::byte*>(segment.block.data);
  }
  void deallocate(Segment& segment) const {
    if (segment.source == nullptr) return driver().deallocate(state_.device, segment.base);
    const NoActivePool scope;
    // The last reference goes here too, while the heap's lock is released.
    std::exchange(segment.source, nullptr)->deallocate(segment.block);
  }

  // Adds a new segment as one free block.
  HeapBlock& add(Segments& made) {
    const Segment& segment = made.front();
    segments_.splice(segments_.begin(), made);
    ++state_.segments_made;
    increase(state_.stats.reserved_bytes, is_small(), segment.bytes);
    increase(state_.stats.segment, is_small(), 1);
    if (segment.bytes >= state_.config.max_split_bytes) increase(state_.stats.oversize_segments, 1);
    record(TraceAction::segment_alloc, segment, segment.call_site);
    HeapBlock& block = *segment.first;
    block.data = segment.base;
    block.bytes = segment.bytes;
    block.arena = this;
    block.previous = nullptr;
    block.stream = nullptr;
    return free.insert(block);
  }
  void count_released(const Segment& segment) noexcept {
    GANTRY_ASSERT(segment.pins == 0, "a segment is released that other processes may map");
    GANTRY_ASSERT(state_.segment_bytes >= segment.bytes, "more is released than the segments have");
    state_.segment_bytes -= segment.bytes;
    ++state_.segments_freed;
    decrease(state_.stats.reserved_bytes, is_small(), segment.bytes);
    decrease(state_.stats.segment, is_small(), 1);
    if (segment.bytes >= state_.config.max_split_bytes) decrease(state_.stats.oversize_segments, 1);
    state_.slab.recycle(*segment.first);
  }
  // Records that a segment was added to the list or removed, under the same lock.
  void record(TraceAction action, const Segment& segment, std::uint32_t call_site) const noexcept {
    record_trace(state_.device, action, reinterpret_cast<std::uintptr_t>(segment.base),
                 segment.bytes, 0, call_site);
  }

  Segments segments_;
};

}  // namespace

std::unique_ptr<Arena> make_segment_arena(HeapState& state, ArenaOwner& owner, bool small) {
  return std::make_unique<SegmentArena>(state, owner, small);
}

}  // namespace gantry::memory
