#include <algorithm>
#include <new>
#include <utility>

#include <gantry/core/log.hpp>

#include "memory/heap/device_heap.hpp"

namespace gantry::memory {

// Note [Memory of captures]
// A graph uses the addresses of its capture at every run. So memory for a captured stream comes
// from a pool of that capture, whichever pool the thread has chosen (MemPoolGuard). The pool
// belongs to the capture until Capture::is_needed() is false: then no program can run the graph any
// more. Until then
//   * a block that is freed in the capture is reused in the capture, by the stream that freed it.
//     Other captured streams do not get it, although they may have waited: clocks stand still in a
//     capture, so the order between its streams is not known;
//   * a block that is freed later returns to the pool, from which nothing is allocated any more;
//   * neither recovery nor empty_cache() takes memory from the pool.
// Afterwards recovery takes the pool's free memory, and a later capture takes the pool if it is
// idle. Idle means that no stream may still use any of it: a graph can run on a stream that is not
// ordered after those. A block of another pool may be freed while its stream, or one that it was
// recorded on, is captured. The capture probably used it, so it returns to its own pool when the
// graph no longer exists. (This needs a capture that gantry has seen, see
// StreamClock::may_be_captured. PyTorch leaves it to the program to keep such tensors. So does
// gantry for blocks that are freed after the capture.)

Pool& DeviceHeap::pool_of(const std::shared_ptr<const Capture>& capture) {
  const HeapLock lock(state_.mutex);
  for (const auto& pool : pools_) {
    if (pool->capture == capture) return *pool;
  }
  poll();
  for (const auto& pool : pools_) {
    if (!pool->serves_captures || pool->is_pinned() || !is_idle(*pool)) continue;
    pool->capture = capture;
    return *pool;
  }
  Pool& made = add_pool(true);
  made.capture = capture;
  return made;
}

bool DeviceHeap::is_idle(const Pool& pool) const noexcept {
  return pool.live_blocks == 0 && pool.deferred.empty() &&
         std::ranges::all_of(pool.arenas,
                             [](const auto& arena) { return arena->free.is_complete(); });
}

DeviceHeap::Captures DeviceHeap::captures_that_use(const HeapBlock& block) noexcept {
  Captures captures;
  const auto add = [&](const StreamClock& clock) {
    std::shared_ptr<const Capture> capture = known_capture_of(clock);
    if (capture != nullptr && std::ranges::find(captures, capture) == captures.end()) {
      captures.push_back(std::move(capture));
    }
  };
  try {
    add(block.stream->clock);
    for (const StreamUse& use : block.uses) add(*use.clock);
  } catch (const std::bad_alloc&) {
    logging::error("a device block that a graph may use is free: the host is out of memory");
  }
  return captures;
}

// In the caller's free. `captures` may use the block.
void DeviceHeap::finish_free(HeapBlock& block, Captures captures) noexcept {
  std::erase(captures, block.arena->owner().capture);
  if (captures.empty()) return finish_free(block);
  block.exported.store(false, std::memory_order_relaxed);
  DeferredFrees::freeze_uses(block);
  block.use.store(BlockUse::pending, std::memory_order_relaxed);
  count_deferred(block, true);
  hold(block, std::move(captures));
}

void DeviceHeap::hold(HeapBlock& block, Captures captures) noexcept {
  std::erase(captures, block.arena->owner().capture);
  if (captures.empty()) return;
  try {
    held_.push_back({&block, std::move(captures)});
  } catch (const std::bad_alloc&) {
    logging::error("a device block that a graph may use is lost: the host is out of memory");
  }
}

bool DeviceHeap::is_held(const HeapBlock& block) noexcept {
  release_held();
  return std::ranges::find(held_, &block, &HeldBlock::block) != held_.end();
}

// Frees the blocks whose graphs no longer exist, except those that other processes still use.
bool DeviceHeap::release_held() noexcept {
  bool any = false;
  for (std::size_t i = 0; i < held_.size();) {
    std::erase_if(held_[i].captures, [](const auto& capture) { return !capture->is_needed(); });
    if (!held_[i].captures.empty()) {
      ++i;
      continue;
    }
    HeapBlock& block = *held_[i].block;
    std::swap(held_[i], held_.back());
    held_.pop_back();
    if (block.use.load(std::memory_order_relaxed) == BlockUse::limbo) continue;
    count_deferred(block, false);
    finish_deferred_free(block);
    any = true;
  }
  return any;
}

// A free block of another stream that the request's stream is ordered after.
HeapBlock* DeviceHeap::take_ordered(const Request& request) noexcept {
  if (request.pool.serves_captures) return nullptr;
  return accept(request.arena, request.bytes,
                request.arena.free.take_ordered(request.bytes, request.stream));
}

}  // namespace gantry::memory
