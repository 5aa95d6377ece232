#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gantry/device/properties.hpp>
#include <gantry/memory/ipc.hpp>

#include "memory/heap/device_heap.hpp"
#include "memory/heap/shortage_hooks.hpp"
#include "memory/ipc/heap_export.hpp"
#include "memory/oom_report.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

// How often a request that other threads disturbed is tried again.
constexpr int kRetries = 16;

}  // namespace

// Note [What a shortage costs]
// When nothing that the stream may use at once fits, the steps go from cheap to dear:
//   1. blocks of other streams that this one runs after anyway (asks nobody);
//   2. blocks whose streams turn out to be done (asks the driver, waits for nothing);
//   3. new memory;
//   4. what threads keep in magazines;
//   5. another stream's free block, behind a wait that is inserted into this stream;
//   6. chunks of free blocks, mapped where they are needed, and then other pools' that allow it;
//   7. memory that other processes have given back, and what layers above keep for later;
//   8. waiting on the host, oldest use first, until enough is there;
//   9. once more, if other threads moved memory meanwhile: what they held for a moment was missing;
//  10. an OutOfMemoryError.
// The lock is not held while waiting: the work may depend on threads that allocate.
// Nobody can wait for a stream that is being captured: what it uses stays where it is. Requests of
// captures do without steps 1, 5 and 8; see Note [Memory of captures].
HeapBlock& DeviceHeap::find_memory(HeapLock& lock, const Request& request) {
  if (HeapBlock* block = take_ordered(request)) return *block;
  poll();
  if (HeapBlock* block = take_any(request)) return *block;
  collect_garbage(lock);
  if (HeapBlock* block = request.arena.grow(lock, request.bytes, request.stream, {})) return *block;

  ++core_.stats.num_alloc_retries;
  flush_magazines();
  poll();
  if (HeapBlock* block = take_any(request)) return *block;
  if (HeapBlock* block = take_with_wait(request)) return *block;
  if (HeapBlock* block = harvest_and_grow(lock, request)) return *block;
  lock.unlock();
  bool freed = ipc_sweep() > 0;
  freed = run_shortage_hooks(core_.device) || freed;
  lock.lock();
  if (freed) {
    flush_magazines();
    if (HeapBlock* block = take_any(request)) return *block;
  }
  std::uint64_t before = core_.moves;
  HeapCore::Move::own = 0;
  HeapBlock* found = wait_and_take(lock, request);
  for (int retry = 0; found == nullptr && retry < kRetries && await_moves(lock, before); ++retry) {
    before = core_.moves;
    HeapCore::Move::own = 0;
    found = wait_and_take(lock, request);
  }
  if (found != nullptr) return *found;
  check_is_not_parked(request.pool);  // meanwhile
  report_out_of_memory(lock, request);
}

// True if other threads' moves ended since there were `before` of them; waits for those under way.
bool DeviceHeap::await_moves(HeapLock& lock, std::uint64_t before) {
  constexpr auto kPause = std::chrono::microseconds(50);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  const auto moved = [&] { return core_.moves - before != HeapCore::Move::own; };
  while (!moved() && core_.movers > 0 && std::chrono::steady_clock::now() < deadline) {
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
  return moved();
}

HeapBlock* DeviceHeap::take_any(const Request& request) noexcept {
  if (HeapBlock* block = take_free(request.arena, request.bytes, request.stream)) return block;
  return take_ordered(request);
}

HeapBlock* DeviceHeap::take_with_wait(const Request& request) {
  if (request.pool.serves_captures) return nullptr;
  FreeBlocks& free = request.arena.free;
  HeapBlock* block = free.find_other(request.bytes, request.stream);
  if (block == nullptr || !request.arena.may_serve(block->bytes, request.bytes)) return nullptr;
  // Retired streams can only be waited for by the host.
  if (!block->stream->clock.make_wait(request.stream.clock, block->sequence)) return nullptr;
  ++stream_waits_;
  free.remove(*block);
  return block;
}

HeapBlock* DeviceHeap::harvest_and_grow(HeapLock& lock, const Request& request) {
  const Pool* const everyone = nullptr;
  // First only what is missing beside free blocks, which stay; then from everywhere.
  for (const Pool* only : {static_cast<const Pool*>(&request.pool), everyone}) {
    if (backing_ == HeapBacking::segments) break;  // they cannot be put beside each other
    const auto fill_up = [&](HeapLock& held, std::size_t bytes) {
      const std::size_t spare = core_.chunks.spare();
      if (spare < bytes) harvest(held, bytes - spare, only);
    };
    if (HeapBlock* block = request.arena.grow(lock, request.bytes, request.stream, fill_up)) {
      return block;
    }
  }
  const std::size_t wanted = round_up(request.bytes, kFineChunkBytes);
  const std::size_t spare = core_.chunks.spare();
  if (spare < wanted && harvest(lock, wanted - spare, everyone) == 0) return nullptr;
  if (HeapBlock* block = request.arena.grow(lock, request.bytes, request.stream, {})) return block;
  return take_any(request);
}

HeapBlock* DeviceHeap::wait_and_take(HeapLock& lock, const Request& request) {
  bool waited = false;
  for (;;) {
    // What others freed since the last look may be with their threads.
    flush_magazines();
    // To wait may take a synchronization of the device, which would spoil a capture.
    if (request.pool.serves_captures || !wait_for_oldest(lock)) break;
    if (!waited) ++core_.stats.num_sync_all_streams;
    waited = true;
    if (HeapBlock* block = take_any(request)) return block;
    if (HeapBlock* block = harvest_and_grow(lock, request)) return block;
  }
  // Everything is free now that can be; what is spare may be cut too coarsely, and the driver may
  // have what is needed in pieces.
  harvest(lock, ~std::size_t{0}, nullptr);
  release_spare(lock, ~std::size_t{0});
  if (HeapBlock* block = request.arena.grow(lock, request.bytes, request.stream, {})) return block;
  return accept(
      request.arena, request.bytes,
      request.arena.free.take_deep(request.bytes, request.stream, !request.pool.serves_captures));
}

// Waits for the use that began to end first, of `only` if it is there; false if there is none, so
// that nothing is left to wait for.
bool DeviceHeap::wait_for_oldest(HeapLock& lock, const Pool* only) {
  StreamUse use;
  for (const auto& pool : pools_) {
    if ((only != nullptr && only != pool.get()) || pool->is_pinned()) continue;
    if (use.clock == nullptr) use = pool->pending.oldest();
  }
  for (const auto& pool : pools_) {
    if ((only != nullptr && only != pool.get()) || pool->is_pinned()) continue;
    for (Arena* arena : {pool->small.get(), pool->large.get()}) {
      if (use.clock != nullptr) break;
      if (StreamBlocks* stream = arena->free.unsettled()) {
        use = {&stream->clock, stream->earliest};
      }
    }
  }
  if (use.clock == nullptr) return false;
  lock.unlock();
  try {
    use.clock->wait_for(use.sequence);
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
  settle();
  return true;
}

// Waits for everything that is under way now, but not for what other threads start meanwhile: with
// them busy, that would never end.
void DeviceHeap::wait_for_all(HeapLock& lock) {
  std::vector<StreamUse> uses;
  for (const auto& pool : pools_) {
    if (pool->is_pinned()) continue;
    pool->pending.list(uses);
    pool->small->free.list(uses);
    pool->large->free.list(uses);
  }
  lock.unlock();
  try {
    for (const StreamUse& use : uses) {
      if (use.clock->can_wait_for(use.sequence)) use.clock->wait_for(use.sequence);
    }
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
  settle();
}

void DeviceHeap::flush_magazines() noexcept {
  HeapBlock* blocks = nullptr;
  ThreadCache::visit_all(*this, &blocks);
  return_cached(blocks);
}

bool DeviceHeap::settle() noexcept {
  bool any = release_held();
  for (const auto& pool : pools_) {
    if (pool->is_pinned()) continue;
    pool->pending.settle([&](HeapBlock& block) {
      count_deferred(block, false);
      release(block, false);
      any = true;
    });
    any |= pool->small->free.settle();
    any |= pool->large->free.settle();
  }
  return any;
}

void DeviceHeap::poll() noexcept {
  release_held();
  for (const auto& pool : pools_) {
    if (pool->is_pinned()) continue;
    pool->pending.poll();
    pool->pending.settle([&](HeapBlock& block) {
      count_deferred(block, false);
      release(block, false);
    });
    pool->small->free.poll();
    pool->large->free.poll();
  }
}

// Takes chunks or segments from unused blocks: of `only` if it is there, else of all pools that
// allow it, the common one first.
std::size_t DeviceHeap::harvest(HeapLock& lock, std::size_t bytes, const Pool* only) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < pools_.size() && taken < bytes; ++i) {
    Pool& pool = *pools_[i];
    const bool is_asked = only != nullptr ? only == &pool : pool.serves_others();
    if (pool.parked || pool.is_pinned() || !is_asked) continue;
    taken += pool.large->harvest(lock, bytes - taken);
    if (taken < bytes) taken += pool.small->harvest(lock, bytes - taken);
  }
  return taken;
}

void DeviceHeap::release_spare(HeapLock& lock, std::size_t bytes) {
  const HeapCore::Move move(core_);
  lock.unlock();
  core_.chunks.release_spare(bytes);
  lock.lock();
  core_.refresh_reserved();
}

// Above the threshold, gives what nobody uses back until the threshold is met.
void DeviceHeap::collect_garbage(HeapLock& lock) {
  if (core_.config.gc_threshold <= 0) return;
  const std::size_t total = device_properties(Device::cuda(core_.device)).total_memory;
  const auto target = static_cast<std::size_t>(core_.config.gc_threshold *
                                               static_cast<double>(std::min(core_.limit(), total)));
  const std::size_t held = core_.chunks.held() + core_.segment_bytes;
  if (held <= target) return;
  harvest(lock, held - target, nullptr);
  release_spare(lock, held - target);
}

MemoryBreakdown DeviceHeap::breakdown() {
  count_up();
  MemoryBreakdown breakdown;
  breakdown.allocated = core_.stats.allocated_bytes.all.current;
  breakdown.reserved = core_.stats.reserved_bytes.all.current;
  breakdown.limbo = limbo_bytes_;
  breakdown.pending = core_.stats.active_bytes.all.current - breakdown.allocated - breakdown.limbo;
  breakdown.limit = signed_bytes(core_.limit());
  breakdown.largest_free = signed_bytes(largest_free());
  for (const auto& pool : pools_) {
    for (const auto& [clock, bytes] : pool->pending.waiting()) {
      breakdown.pending_by_stream.emplace_back(clock->id(), signed_bytes(bytes));
    }
    for (Arena* arena : {pool->small.get(), pool->large.get()}) {
      if (pool->serves_others() && !pool->parked) continue;
      HeldSegments held;
      arena->describe(held);
      for (const SegmentInfo& segment : held.segments) {
        if (pool->parked) {
          breakdown.parked += signed_bytes(segment.allocated_bytes);
        } else {
          breakdown.private_pools += signed_bytes(segment.total_bytes);
        }
      }
    }
  }
  return breakdown;
}

void DeviceHeap::report_out_of_memory(HeapLock& lock, const Request& request) {
  report_out_of_memory(lock, request.bytes, request.stream.clock.id(), {});
}

void DeviceHeap::report_out_of_memory(std::size_t bytes, std::string_view purpose) {
  HeapLock lock(core_.mutex);
  report_out_of_memory(lock, bytes, 0, purpose);
}

void DeviceHeap::report_out_of_memory(HeapLock& lock, std::size_t bytes, std::uint64_t stream,
                                      std::string_view purpose) {
  ++core_.stats.num_ooms;
  MemoryBreakdown told = breakdown();
  told.requested = signed_bytes(bytes);
  lock.unlock();
  if (recording_history()) {
    const std::size_t free = driver().memory_info(core_.device).free;
    record_trace(core_.device, TraceAction::oom, free, bytes, stream, capture_call_site());
    told.top_call_sites = top_call_sites();
  }
  throw_shortage(std::move(told), purpose);
}

void DeviceHeap::throw_shortage(MemoryBreakdown told, std::string_view purpose) const {
  const NativeMemoryInfo info = driver().memory_info(core_.device);
  told.total = static_cast<std::int64_t>(info.total);
  told.free = static_cast<std::int64_t>(info.free);
  told.limit = std::min(told.limit, told.total);
  for (const auto& [process, bytes] : ipc_stats(Device::cuda(core_.device)).limbo_by_consumer) {
    told.limbo_by_process.emplace_back(process, signed_bytes(bytes));
  }
  throw_out_of_memory(core_.device, told,
                      backing_ == HeapBacking::segments && core_.stats.max_split_size < 0, purpose);
}

bool DeviceHeap::release_unused() {
  HeapLock lock(core_.mutex);
  flush_magazines();
  poll();
  harvest(lock, ~std::size_t{0}, nullptr);
  release_spare(lock, ~std::size_t{0});
  return std::ranges::any_of(pools_, [](const auto& pool) {
    return pool->pending.oldest().clock != nullptr || pool->small->free.unsettled() != nullptr ||
           pool->large->free.unsettled() != nullptr;
  });
}

// The program's places that asked for most of what is in use.
std::vector<std::pair<std::string, std::int64_t>> DeviceHeap::top_call_sites() {
  constexpr std::size_t kTop = 5;
  std::map<std::string, std::int64_t> by_site;
  HeldSegments held = segments();
  held.look_up_frames();
  for (const SegmentInfo& segment : held.segments) {
    for (const BlockInfo& block : segment.blocks) {
      const Frame* const frame = block.frames.call_site();
      if (block.state == BlockState::inactive || frame == nullptr) continue;
      by_site[fmt::format("{} ({}:{})", frame->name, frame->filename, frame->line)] +=
          signed_bytes(block.bytes);
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> top(by_site.begin(), by_site.end());
  std::ranges::sort(top, std::ranges::greater(), [](const auto& site) { return site.second; });
  if (top.size() > kTop) top.resize(kTop);
  return top;
}

}  // namespace gantry::memory
