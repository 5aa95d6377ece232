#include "memory/heap/saved_contents.hpp"

#include <algorithm>
#include <utility>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "core/assert.hpp"
#include "memory/blocks/poison.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

struct Extent {
  std::uintptr_t address;
  std::size_t bytes;
};

std::vector<Extent> live_blocks(const Pool& pool) {
  HeldSegments held;
  for (const auto& arena : pool.arenas) arena->describe(held);
  std::vector<Extent> live;
  for (const SegmentInfo& segment : held.segments) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.state == BlockState::active_allocated) live.push_back({block.address, block.bytes});
    }
  }
  std::ranges::sort(live, {}, &Extent::address);
  return live;
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

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

// The end of a block is poisoned; from here on it is not.
void unpoison_all(const Extent& block) {
  if (poisons_device_memory()) unpoison_now(pointer(block.address), block.bytes);
}

}  // namespace

void SavedContents::save(HeapLock& lock, const Pool& pool) {
  GANTRY_ASSERT(empty(), "contents are saved in place of others that were not restored");
  std::vector<Saved> blocks;
  std::size_t total = 0;
  for (const Extent& block : live_blocks(pool)) {
    blocks.push_back({block.address, block.bytes, total});
    total += block.bytes;
  }
  if (blocks.empty()) return;
  Buffer host;
  {
    const Unlocked unlocked(lock);
    host = pinned(total);
    copy_all({.device = pool.state->device}, [&](NativeStream stream) {
      for (const Saved& block : blocks) {
        unpoison_all({block.address, block.bytes});
        driver().copy(static_cast<std::byte*>(host.data()) + block.offset, pointer(block.address),
                      block.bytes, stream);
      }
    });
  }
  blocks_ = std::move(blocks);
  host_ = std::move(host);
}

void SavedContents::restore(HeapLock& lock, const Pool& pool) const {
  if (empty()) return;
  const std::vector<Extent> live = live_blocks(pool);
  const Unlocked unlocked(lock);
  copy_all({.device = pool.state->device}, [&](NativeStream stream) {
    auto saved = blocks_.begin();
    for (const Extent& block : live) {
      while (saved != blocks_.end() && saved->address < block.address) ++saved;
      if (saved == blocks_.end()) break;
      if (saved->address != block.address || saved->bytes != block.bytes) continue;
      unpoison_all(block);
      driver().copy(pointer(block.address),
                    static_cast<const std::byte*>(host_.data()) + saved->offset, block.bytes,
                    stream);
    }
  });
}

void SavedContents::clear() noexcept {
  blocks_.clear();
  host_.reset();
}

}  // namespace gantry::memory
