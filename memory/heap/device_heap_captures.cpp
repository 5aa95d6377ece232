#include <algorithm>
#include <new>
#include <utility>

#include <gantry/core/log.hpp>

#include "memory/heap/device_heap.hpp"

namespace gantry::memory {

// Note [Memory of captures]
// A graph uses the addresses of its capture at every run, whoever has them by then. So memory for a
// stream that is being captured comes from a pool of that capture, whichever pool the thread has
// chosen otherwise (MemPoolGuard), and stays the capture's until Capture::is_needed() says that
// nothing can run the graph any more. Until then
//   * a block that is freed in the capture is reused in the capture, by the stream that freed it.
//     Other captured streams do not get it, though they may have waited: clocks stand still in a
//     capture, so what waited for what is not known;
//   * a block that is freed later returns to the pool as well, where nobody asks any more;
//   * neither shortage nor empty_cache() takes memory from the pool.
// Then the pool serves others as any pool that may: recovery takes its free memory, and so does a
// later capture if the pool is idle. Idle means that no stream may still use any of it: a graph can
// run on a stream that knows nothing of those.
// A block from elsewhere that is freed while its stream, or one that it was recorded on, is
// captured was probably used by the capture. It returns to its own pool when the graph is gone.
// (This needs a capture that gantry has seen, see StreamClock::may_be_captured. PyTorch leaves it
// to the program to keep such tensors, as it does here for what is freed after the capture.)

Pool& DeviceHeap::pool_of(const std::shared_ptr<const Capture>& capture) {
  const HeapLock lock(core_.mutex);
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
  return pool.live_blocks == 0 && pool.pending.empty() && pool.small->free.is_settled() &&
         pool.large->free.is_settled();
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
  if (captures.empty()) return finish_free(block, true);
  block.exported.store(false, std::memory_order_relaxed);
  PendingBlocks::fix_marks(block);
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

// Frees the blocks whose graphs are gone. Those in limbo are somebody else's still.
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
    finish_free(block, false);
    any = true;
  }
  return any;
}

// Among blocks of other streams that the request's stream is ordered behind.
HeapBlock* DeviceHeap::take_ordered(const Request& request) noexcept {
  if (request.pool.serves_captures) return nullptr;
  return accept(request.arena, request.bytes,
                request.arena.free.take_ordered(request.bytes, request.stream));
}

}  // namespace gantry::memory
