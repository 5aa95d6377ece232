// An arena of one large address range, with chunks mapped at the blocks.
#include <algorithm>
#include <memory>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "core/assert.hpp"
#include "device/platform/poison.hpp"
#include "memory/arenas/address_range.hpp"
#include "memory/arenas/arena.hpp"
#include "memory/blocks/block_chain.hpp"
#include "memory/history/history.hpp"

namespace gantry::memory {
namespace {

// Blocks keep their addresses while chunks are remapped, so free addresses can be scattered. A
// process has addresses for some hundred times an H200's memory, and all private pools share them.
constexpr std::size_t kRangePerMemory = 4;
constexpr std::size_t kPrivateRangePerMemory = 1;
constexpr std::size_t kVictimBytes = std::size_t{16} << 20;  // see Note [Reclaimed blocks]

// Note [Reclaimed blocks]
// The driver takes about 50 us to move a chunk, whatever its size, and 100 us for each call. So
// recovery should move few chunks, now and later. It takes the smallest block with all bytes that
// are missing, or with kVictimBytes: small blocks serve few requests, and large ones grow at little
// cost. With a lower kVictimBytes, programs of small blocks lose more than those of large ones
// gain.
//
// If no block has that many bytes, it takes the block that has been free longest: programs repeat
// themselves, so a block that was freed lately will be requested again. It passes over blocks with
// less than half of the longest run of chunks, which would take many calls. The sequence number of
// a block tells its age, since recovery records events. Numbers of two streams are compared too: a
// poor choice costs driver calls, nothing else.

// Blocks in an address range to which chunks are mapped where blocks need them; see Note [Holes].
class VmmArena final : public Arena {
 public:
  VmmArena(HeapState& state, ArenaOwner& owner) : Arena(state, owner, false, true) {}

  [[nodiscard]] HeapBlock* grow(HeapLock& lock, const BlockRequest& request, ChunkSource source,
                                Growth& growth) override {
    open_range(request.size);
    const bool from_driver = source == ChunkSource::driver;
    for (const bool coarse : {true, false}) {
      if (coarse && (growth.has_begun() || !from_driver || !is_roomy())) continue;
      growth.missing = 0;
      if (!growth.has_begun()) {
        const std::size_t unit = coarse ? kCoarseChunkBytes : kFineChunkBytes;
        const std::size_t bytes = coarse ? round_up(request.size, unit) : request.size;
        if (bytes > range_->bytes() || owner().released) continue;
        if (!blocks_.begin(growth, bytes, unit, request.stream)) continue;
      }
      HeapBlock& hole = growth.hole();
      const std::size_t limit = from_driver ? state_.limit() : state_.chunks.held();
      bool mapped = false;
      {
        const HeapState::ChunkTransfer transfer(state_, lock);
        mapped = range_->map(run_of(hole), limit, coarse || request.size >= kCoarseBlockBytes);
        if (mapped && poisons_device_memory()) poison_now(hole.data, hole.bytes);
      }
      if (mapped) {
        count_runs();
        record(TraceAction::segment_map, hole);
        return &take(free.insert(growth.end()), request);
      }
      growth.missing = hole.bytes - std::min(hole.bytes, state_.chunks.unmapped());
      if (coarse) growth.cancel();
    }
    return nullptr;
  }

  std::size_t reclaim(HeapLock& lock, std::size_t bytes) override {
    const std::size_t taken = unmap_free(lock, bytes, false);
    state_.reclaimed_bytes += taken;
    return taken;
  }

  [[nodiscard]] std::size_t growth_bytes(std::size_t size) const override { return size; }
  [[nodiscard]] std::size_t growth_slack() const override {
    return is_roomy() ? kCoarseChunkBytes : 0;
  }
  [[nodiscard]] bool has_releasable() const override { return false; }
  [[nodiscard]] std::size_t captured_bytes() const override {
    std::size_t bytes = 0;
    for (const HeapBlock* block = blocks_.first(); block != nullptr; block = block->next) {
      if (block->is(BlockUse::free) && must_stay(*block)) {
        bytes += block->bytes;
      }
    }
    return bytes;
  }

  void describe(HeldSegments& held) const override {
    bool in_segment = false;
    for (const HeapBlock* block = blocks_.first(); block != nullptr; block = block->next) {
      if (block->has_memory() && !in_segment) {
        // Many callers extend a range, so the segment has no call site.
        describe_segment(block->data, 0, held);
        held.segments.back().is_expandable = true;
      }
      if (block->has_memory()) describe_block(*block, held);
      in_segment = block->has_memory();
    }
  }

  void check_can_release_physical() const override {
    if (range_ == nullptr || !range_->has_pins()) return;
    throw InvalidArgument(
        "MemPool::release_physical: expected a pool without exported blocks, but got one that "
        "another process may use",
        Device::cuda(state_.device).str());
  }
  void release_physical(HeapLock& lock) override {
    if (range_ == nullptr) return;
    // The pool is marked as released, so no growth begins.
    while (blocks_.growths() + unmappings_ != 0) {
      const Unlocked unlocked(lock);
      std::this_thread::yield();
    }
    // Only the memory of live blocks is to be restored.
    unmap_free(lock, kEverything, true);
    for (const Run& run : range_->mapped_runs()) {
      released_.add(run);  // before it is unmapped: nothing may fail afterwards
      try {
        const HeapState::ChunkTransfer transfer(state_, lock);
        range_->unmap(run);
      } catch (...) {
        released_.remove(run);
        throw;
      }
      count_runs();
    }
    GANTRY_ASSERT(range_->count_runs() == 0, "a pool without physical memory has mapped chunks");
    state_.release_unmapped(lock, kEverything);
  }
  [[nodiscard]] bool restore_physical(HeapLock& lock) override {
    GANTRY_ASSERT(owner().released || released_.empty(), "a pool with its memory lacks some of it");
    while (!released_.empty()) {
      const Run run = released_.last();
      const std::size_t limit = state_.limit();
      {
        const HeapState::ChunkTransfer transfer(state_, lock);
        if (!range_->map(run, limit, run.bytes() >= kCoarseBlockBytes)) return false;
      }
      count_runs();
      released_.remove(run);
    }
    return true;
  }
  void discard_unused() override {
    for (;;) {
      state_.slab.reserve(2);  // for extract(): nothing may fail after the removal
      HeapBlock* block = nullptr;
      Run part;
      free.for_each_common(kFineChunkBytes, [&](HeapBlock& candidate) {
        const Run run = run_of(candidate);
        part = released_.first_inside(
            {round_up(run.begin, kFineChunkBytes), run.end / kFineChunkBytes * kFineChunkBytes});
        if (part.bytes() != 0) block = &candidate;
        return block == nullptr;
      });
      if (block == nullptr) return;
      released_.remove(part);
      blocks_.insert_hole(blocks_.extract(*block, part.begin - run_of(*block).begin, part.bytes()));
    }
  }
  [[nodiscard]] std::size_t released_bytes() const override { return released_.bytes(); }

  [[nodiscard]] BlockExtent pin(const HeapBlock& block) override {
    if (owner().released) {
      throw InvalidArgument(
          "export_ipc: expected a block with physical memory, but got one of a pool that released "
          "it");
    }
    return range_->pin(run_of(block));
  }
  void unpin(const HeapBlock& block) noexcept override { range_->unpin(run_of(block)); }

  std::size_t verify() const noexcept override {
    free.verify();
    if (range_ == nullptr) return 0;
    blocks_.verify();
    range_->verify();
    std::size_t in_blocks = 0;
    for (const HeapBlock* block = blocks_.first(); block != nullptr; block = block->next) {
      if (block->has_memory()) in_blocks += block->bytes;
    }
    std::size_t mapped = 0;
    for (const Run& run : range_->mapped_runs()) mapped += run.bytes();
    GANTRY_ASSERT(in_blocks == mapped + released_.bytes(),
                  "the blocks of an address range have other memory than is mapped there");
    GANTRY_ASSERT(counted_runs_ == range_->count_runs(), "mapped runs are not counted as segments");
    return mapped;
  }

 private:
  // Where addresses are scarce, a shorter range does if it has room for `needed` bytes.
  void open_range(std::size_t needed) {
    if (range_ != nullptr) return;
    const std::size_t memory = device_properties(Device::cuda(state_.device)).total_memory;
    std::size_t bytes = (owner().id == 0 ? kRangePerMemory : kPrivateRangePerMemory) * memory;
    state_.slab.reserve(1);
    while (range_ == nullptr) {
      bytes = round_up(bytes, kCoarseChunkBytes);
      try {
        range_ = std::make_unique<AddressRange>(state_.chunks, bytes);
      } catch (const CudaError& error) {
        bytes /= 2;
        if (error.code() != kCudaOutOfMemory || bytes < std::max(needed, kCoarseChunkBytes)) throw;
      }
    }
    blocks_.open(this, range_->base(), range_->bytes());
  }
  [[nodiscard]] Run run_of(const HeapBlock& block) const noexcept {
    GANTRY_ASSERT(range_->base() <= block.data && block.end() <= range_->base() + range_->bytes(),
                  "a block is outside of the address range of its arena");
    const auto begin = static_cast<std::size_t>(block.data - range_->base());
    return {begin, begin + block.bytes};
  }
  // Mapping costs the same for any chunk size. So growth is coarse while no limit is set and less
  // than half of the device is held; later the memory that fine chunks save counts more.
  [[nodiscard]] bool is_roomy() const {
    const std::size_t total = device_properties(Device::cuda(state_.device)).total_memory;
    return !owner().options.no_split && state_.fraction >= 1 && total >= 512 * kCoarseChunkBytes &&
           state_.chunks.held() < total / 2;
  }

  // The first run of `bytes` of whole chunks in a free block, or its longest one; empty if the
  // block must stay.
  [[nodiscard]] Run whole_chunks(const HeapBlock& block, std::size_t bytes) const {
    return must_stay(block) ? Run{} : range_->whole_chunks(run_of(block), bytes);
  }
  // The common block to reclaim from next, and its first run of `bytes` of whole chunks, or its
  // longest one; nullptr if no common block has a whole chunk.
  [[nodiscard]] HeapBlock* next_victim(std::size_t bytes, Run& chunks) {
    HeapBlock* victim = smallest_victim(std::min(bytes, kVictimBytes), bytes, chunks);
    return victim != nullptr ? victim : oldest_victim(bytes, chunks);
  }
  // The smallest block with a run of `enough` bytes.
  [[nodiscard]] HeapBlock* smallest_victim(std::size_t enough, std::size_t bytes, Run& chunks) {
    HeapBlock* victim = nullptr;
    free.for_each_common(std::max(enough, kFineChunkBytes), [&](HeapBlock& block) {
      chunks = whole_chunks(block, bytes);
      if (chunks.bytes() >= enough) victim = &block;
      return victim == nullptr;
    });
    return victim;
  }
  // The block with the longest run.
  [[nodiscard]] HeapBlock* longest_victim(std::size_t bytes, int most_visits, Run& chunks) {
    HeapBlock* victim = nullptr;
    int visits = 0;
    chunks = {};
    free.for_each_common_from_largest([&](HeapBlock& block) {
      const Run found = whole_chunks(block, bytes);
      if (found.bytes() > chunks.bytes()) {
        victim = &block;
        chunks = found;
      }
      return block.bytes >= chunks.bytes() + kFineChunkBytes &&
             (victim == nullptr || ++visits < most_visits);
    });
    return victim;
  }
  // The oldest block with at least half of the longest run; of several, the smallest.
  [[nodiscard]] HeapBlock* oldest_victim(std::size_t bytes, Run& chunks) {
    // Small blocks can be many. If all are to be reclaimed, their order does not matter.
    const int most_visits = bytes >= range_->bytes() ? 1 : 1000;
    HeapBlock* const longest = longest_victim(bytes, most_visits, chunks);
    if (longest == nullptr) return nullptr;
    const std::size_t least = std::max(chunks.bytes() / 2, kFineChunkBytes);
    HeapBlock* victim = nullptr;
    int visits = 0;
    free.for_each_common(least, [&](HeapBlock& block) {
      const Run found = whole_chunks(block, bytes);
      if (found.bytes() >= least && (victim == nullptr || block.sequence < victim->sequence)) {
        victim = &block;
        chunks = found;
      }
      return ++visits < most_visits;
    });
    return victim != nullptr ? victim : longest;
  }

  // Unmaps whole chunks of common blocks until they are `bytes`, while ArenaOwner::released is
  // `released`.
  std::size_t unmap_free(HeapLock& lock, std::size_t bytes, bool released) {
    if (range_ == nullptr) return 0;
    std::size_t taken = 0;
    while (taken < bytes && owner().released == released) {
      Run chunks;
      HeapBlock* victim = next_victim(bytes - taken, chunks);
      if (victim == nullptr) break;
      HeapBlock& block =
          blocks_.extract(*victim, chunks.begin - run_of(*victim).begin, chunks.bytes());
      // Before another thread can map the chunks elsewhere.
      record(TraceAction::segment_unmap, block);
      block.change(BlockUse::in_transition, BlockUse::mapping);
      ++unmappings_;
      try {
        const HeapState::ChunkTransfer transfer(state_, lock);
        range_->unmap(chunks);
      } catch (...) {
        --unmappings_;
        record(TraceAction::segment_map, block);
        free.insert(block);
        throw;
      }
      GANTRY_ASSERT(unmappings_ > 0, "more chunks are unmapped than were begun");
      --unmappings_;
      blocks_.insert_hole(block);
      count_runs();
      taken += chunks.bytes();
    }
    return taken;
  }

  // Records that the block's memory comes or goes. Its state changes under the same lock.
  void record(TraceAction action, const HeapBlock& block) const noexcept {
    record_trace(state_.device, action, reinterpret_cast<std::uintptr_t>(block.data), block.bytes,
                 0, capture_call_site(action));
  }
  // Counts the mapped runs as segments, after the mapping changed.
  void count_runs() {
    const std::size_t runs = range_->count_runs();
    count_segments(counted_runs_, runs);
    counted_runs_ = runs;
  }

  std::unique_ptr<AddressRange> range_;  // made by the first growth
  BlockChain blocks_{state_.slab, free};
  int unmappings_ = 0;  // in progress
  std::size_t counted_runs_ = 0;
  RunSet released_;  // to be restored
};

}  // namespace

std::unique_ptr<Arena> make_vmm_arena(HeapState& state, ArenaOwner& owner) {
  return std::make_unique<VmmArena>(state, owner);
}

}  // namespace gantry::memory
