// The physical memory of whole pools.

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "core/assert.hpp"
#include "device/peer_access.hpp"
#include "device/platform/poison.hpp"
#include "memory/heap/device_heap.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/history/history.hpp"
#include "memory/policy/active_pool.hpp"

namespace gantry::memory {
namespace {

using Saved = SavedContents::Saved;

// The live blocks by address, each with an offset behind those before it.
std::vector<Saved> live_blocks(const Pool& pool) {
  HeldSegments held;
  for (const auto& arena : pool.arenas) arena->describe(held);
  std::vector<Saved> live;
  for (const SegmentInfo& segment : held.segments) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.state != BlockState::active_allocated) continue;
      live.push_back({block.address, block.bytes, 0});
    }
  }
  std::ranges::sort(live, {}, &Saved::address);
  std::size_t total = 0;
  for (Saved& block : live) block.offset = std::exchange(total, total + block.bytes);
  return live;
}

// Waits for the stream's copies. If one of them failed, the others may still run: the caller frees
// their memory next. To wait for the device would spoil a capture.
template <class Submit>
void copy_all(NativeStream stream, Submit submit) {
  try {
    submit(stream);
    driver().synchronize_stream(stream);
  } catch (...) {
    try {
      driver().synchronize_stream(stream);
    } catch (...) {  // the first error is the cause
    }
    throw;
  }
}

// The memory of a block. Its end is poisoned; from here on it is not.
void* memory_of(const Saved& block) {
  auto* const data = reinterpret_cast<void*>(block.address);
  if (poisons_device_memory()) unpoison_now(data, block.bytes);
  return data;
}

void release_arenas(HeapLock& lock, Pool& pool) {
  for (const auto& arena : pool.arenas) arena->release_physical(lock);
}

// Copies all live blocks of the pool, whose memory no work uses. The heap's lock is released
// meanwhile. Throws, with the strong guarantee: OutOfMemoryError, CudaError, std::bad_alloc.
void save_contents(int device, HeapLock& lock, Pool& pool) {
  GANTRY_ASSERT(pool.saved.blocks.empty(),
                "contents are saved in place of others that were not restored");
  std::vector<Saved> blocks = live_blocks(pool);
  if (blocks.empty()) return;
  Buffer host;
  {
    const Unlocked unlocked(lock);
    host = pinned(blocks.back().offset + blocks.back().bytes);
    copy_all({.device = device}, [&](NativeStream stream) {
      for (const Saved& block : blocks) {
        driver().copy(static_cast<std::byte*>(host.data()) + block.offset, memory_of(block),
                      block.bytes, stream);
      }
    });
  }
  pool.saved = {std::move(blocks), std::move(host)};
}

// Copies them back to the blocks that are still live and have memory. The copy is kept.
// Throws: CudaError, std::bad_alloc.
void restore_contents(int device, HeapLock& lock, const Pool& pool) {
  const auto& [blocks, host] = pool.saved;
  if (blocks.empty()) return;
  const std::vector<Saved> live = live_blocks(pool);
  const Unlocked unlocked(lock);
  copy_all({.device = device}, [&](NativeStream stream) {
    auto saved = blocks.begin();
    for (const Saved& block : live) {
      while (saved != blocks.end() && saved->address < block.address) ++saved;
      if (saved == blocks.end()) break;
      if (saved->address != block.address || saved->bytes != block.bytes) continue;
      driver().copy(memory_of(block), static_cast<const std::byte*>(host.data()) + saved->offset,
                    block.bytes, stream);
    }
  });
}

}  // namespace

void DeviceHeap::destroy_pool(Pool& pool) {
  const NoActivePool scope;  // for the allocator of the program
  const std::shared_ptr<Allocator> source = pool.options.allocator;  // dies without the locks
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  ThreadCache::flush_blocks(state_);
  // Later frees serve all pools.
  pool.options = {.use_on_oom = true, .no_split = pool.options.no_split};
  try {
    frees_.poll();
    while (pool.has_incomplete() && frees_.wait_for_oldest(lock, &pool)) {
    }
    if (pool.released) pool.discard_unused();
    if (pool.released) restore_physical(lock, pool);
    pools_.release(lock, kEverything, &pool);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    pool.saved = {};
    pool.destroyed = true;
    throw;
  }
  pool.saved = {};
  pool.destroyed = true;
}

void DeviceHeap::release_physical(Pool& pool, PoolBackup backup) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  for (const auto& arena : pool.arenas) arena->check_can_release_physical();
  if (pool.released) return;
  if (!may_synchronize_devices()) {
    throw CaptureError(
        "MemPool::release_physical: expected no stream that is being captured, but got one: the "
        "wait for the device would invalidate the capture; end the capture first",
        Device::cuda(state_.device).str());
  }
  pool.released = true;  // refuses allocations from now on
  ThreadCache::flush_blocks(state_);
  try {
    {
      const Unlocked unlocked(lock);
      synchronize_device_clocks(state_.device);
      for (const int peer : devices_with_access_to(state_.device)) synchronize_device_clocks(peer);
    }
    frees_.poll();
    if (backup == PoolBackup::host) save_contents(state_.device, lock, pool);
    release_arenas(lock, pool);
  } catch (...) {
    try {
      restore_physical(lock, pool);
    } catch (const std::exception&) {  // it stays released; the first error is the cause
    }
    throw;
  }
}

void DeviceHeap::restore_physical(Pool& pool) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  if (pool.released) restore_physical(lock, pool);
}

// All or nothing: on failure the memory is left to others.
void DeviceHeap::restore_physical(HeapLock& lock, Pool& pool) {
  try {
    for (const auto& arena : pool.arenas) {
      while (!arena->restore_physical(lock)) {
        const std::size_t missing = arena->released_bytes();
        ThreadCache::flush_blocks(state_);
        frees_.poll();
        if (pools_.reclaim(lock, missing) == 0 && !frees_.wait_for_oldest(lock)) {
          recovery_.report_unrestored(lock, missing);
        }
      }
    }
    restore_contents(state_.device, lock, pool);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    try {
      release_arenas(lock, pool);
    } catch (const std::exception&) {  // the next restore need not map what stays mapped
    }
    throw;
  }
  GANTRY_ASSERT(std::ranges::all_of(pool.arenas,
                                    [](const auto& arena) { return arena->released_bytes() == 0; }),
                "a pool is restored that lacks some of its memory");
  pool.saved = {};
  pool.released = false;
}

}  // namespace gantry::memory
