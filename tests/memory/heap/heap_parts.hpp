// The parts of one heap, without its allocator and without magazines.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include <gantry/device/properties.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/heap/oom_recovery.hpp"

namespace gantry::testing {

/// Note [Parts of a heap], up to OomRecovery. The destructor releases the memory of all blocks,
/// which are free by then.
class HeapParts {
 public:
  HeapParts(int device, memory::HeapBacking backing)
      : state(device, memory::AllocConfig{}),
        pools(memory::heap_allocator().heap(device), state, backing) {}
  ~HeapParts() {
    verify();
    memory::HeapLock lock(state.mutex);
    frees.wait_for_all(lock);
    frees.wait_for_all(lock);
    for (const auto& pool : pools) {
      EXPECT_EQ(pool->live_blocks, 0) << "of pool " << pool->id;
      pools.reclaim(lock, ~std::size_t{0}, pool.get());
    }
    state.release_unmapped(lock, ~std::size_t{0});
    EXPECT_EQ(state.reserved(), 0u);
  }
  HeapParts(const HeapParts&) = delete;
  HeapParts& operator=(const HeapParts&) = delete;

  /// Limits the memory that the heap may hold.
  void limit_to(std::size_t bytes) {
    const auto total = device_properties(Device::cuda(state.device)).total_memory;
    state.fraction = (static_cast<double>(bytes) + 0.5) / static_cast<double>(total);
  }
  /// A block that recovery found.
  memory::HeapBlock& allocate(std::size_t bytes, const Stream& stream, memory::Pool& pool) {
    memory::HeapLock lock(state.mutex);
    memory::StreamBlocks& own = pool.large->free.of(stream);
    memory::HeapBlock& block = recovery.allocate(
        lock, *pool.large, {bytes, memory::kBlockGrain, memory::block_bytes(bytes), own});
    EXPECT_TRUE(lock.owns_lock());
    block.stream = &own;
    block.requested.store(bytes);
    block.change(memory::BlockUse::in_transition, memory::BlockUse::live);
    ++pool.live_blocks;
    state.count_allocation(block, bytes);
    return block;
  }
  memory::HeapBlock& allocate(std::size_t bytes, const Stream& stream) {
    return allocate(bytes, stream, pools.common());
  }
  void free(memory::HeapBlock& block) {
    const memory::HeapLock lock(state.mutex);
    block.change(memory::BlockUse::live, memory::BlockUse::in_transition);
    --memory::owner_of(block).live_blocks;
    state.count_free(block);
    frees.free(block, memory::HeapFrees::captures_of(block));
  }
  /// All work of `stream` before the free uses the block.
  void record_use(memory::HeapBlock& block, const Stream& stream) {
    const memory::HeapLock lock(state.mutex);
    memory::owner_of(block).deferred.add_use(block, StreamClock::of(stream), 0);
  }
  [[nodiscard]] memory::Stats collect() {
    const memory::HeapLock lock(state.mutex);
    return stats.collect(pools);
  }
  void verify() {
    const memory::HeapLock lock(state.mutex);
    pools.verify();
    frees.verify();
    std::size_t held = 0;
    for (const auto& pool : pools) {
      for (const auto& arena : pool->arenas) held += arena->verify();
    }
    EXPECT_EQ(state.reserved(), held + state.chunks.unmapped());
    EXPECT_EQ(state.transfers.pending(), 0);
  }

  memory::HeapState state;
  memory::PoolSet pools;
  memory::HeapStats stats{state};
  memory::HeapFrees frees{pools, stats};
  memory::OomRecovery recovery{state, pools, stats, frees};
};

/// A device, and where the memory of its heap comes from.
struct HeapKind {
  int device;
  memory::HeapBacking backing;
};
inline std::string name_of(const ::testing::TestParamInfo<HeapKind>& info) {
  return (info.param.backing == memory::HeapBacking::vmm ? "chunks_of_" : "segments_of_") +
         std::to_string(info.param.device);
}
inline const auto kHeapKinds = ::testing::Values(
    HeapKind{0, memory::HeapBacking::vmm}, HeapKind{0, memory::HeapBacking::segments},
    HeapKind{2, memory::HeapBacking::vmm}, HeapKind{2, memory::HeapBacking::segments});

}  // namespace gantry::testing
