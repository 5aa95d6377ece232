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

#include "memory/heap/device_heap.hpp"
#include "memory/heap/memory_pressure.hpp"
#include "memory/oom_report.hpp"
#include "memory/source/exportable.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

// Attempts of a request while other threads hold memory in transition.
constexpr int kRetries = 16;
constexpr int kCudaOutOfMemory = 2;
constexpr std::size_t kEverything = ~std::size_t{0};

}  // namespace

// Note [Out-of-memory recovery]
// If no free block of the stream fits, the steps go from cheap to expensive:
//   1. free blocks of other streams that this stream is ordered after (no driver call);
//   2. free blocks whose streams have completed (asks the driver, waits for nothing);
//   3. new memory;
//   4. blocks in the magazines of threads;
//   5. a free block of another stream, after a wait that is inserted into this stream;
//   6. chunks of free blocks, remapped: of this pool, then of other pools that allow it;
//   7. memory that other processes have freed, and caches of layers above (memory_pressure.hpp);
//   8. waiting on the host, oldest use first, until a block fits;
//   9. another attempt, if other threads had memory in transition meanwhile;
//  10. an OutOfMemoryError.
// The lock is not held while waiting: the work may depend on threads that allocate.
// A captured stream cannot be waited for, so its blocks stay in use. Requests of captures skip
// steps 1, 5 and 8; see Note [Memory of captures].
HeapBlock& DeviceHeap::allocate_slow(HeapLock& lock, const Request& request) {
  if (HeapBlock* block = take_ordered(request)) return *block;
  poll();
  if (HeapBlock* block = take_any(request)) return *block;
  collect_garbage(lock);
  if (HeapBlock* block = grow(lock, request, Reclaim::nothing)) return *block;

  ++state_.stats.num_alloc_retries;
  flush_magazines();
  poll();
  if (HeapBlock* block = take_any(request)) return *block;
  if (HeapBlock* block = take_with_wait(request)) return *block;
  if (HeapBlock* block = reclaim_and_grow(lock, request)) return *block;
  lock.unlock();
  const bool freed = run_memory_pressure_callbacks(state_.device);
  lock.lock();
  if (freed) {
    flush_magazines();
    if (HeapBlock* block = take_any(request)) return *block;
  }
  using ChunkTransfer = HeapState::ChunkTransfer;
  std::uint64_t before = state_.completed_transfers;
  ChunkTransfer::completed_by_thread = 0;
  HeapBlock* found = wait_and_take(lock, request);
  for (int retry = 0; found == nullptr && retry < kRetries && wait_for_transfers(lock, before);
       ++retry) {
    before = state_.completed_transfers;
    ChunkTransfer::completed_by_thread = 0;
    found = wait_and_take(lock, request);
  }
  if (found != nullptr) return *found;
  check_has_physical(request.pool);  // another thread may have released it meanwhile
  report_out_of_memory(lock, request);
}

// Waits for pending transfers. True if other threads completed some since there were `before`.
bool DeviceHeap::wait_for_transfers(HeapLock& lock, std::uint64_t before) {
  constexpr auto kPause = std::chrono::microseconds(50);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  const auto completed = [&] {
    return state_.completed_transfers - before != HeapState::ChunkTransfer::completed_by_thread;
  };
  while (!completed() && state_.pending_transfers > 0 &&
         std::chrono::steady_clock::now() < deadline) {
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
  return completed();
}

HeapBlock* DeviceHeap::take_any(const Request& request) noexcept {
  if (HeapBlock* block = take_free(request.arena, request.bytes, request.stream)) return block;
  return take_ordered(request);
}

HeapBlock* DeviceHeap::take_with_wait(const Request& request) {
  if (request.pool.serves_captures) return nullptr;
  FreeBlocks& free = request.arena.free;
  HeapBlock* block = free.find_with_event_wait(request.bytes, request.stream);
  if (block == nullptr || !request.arena.may_serve(block->bytes, request.bytes)) return nullptr;
  if (!block->stream->clock.make_wait(request.stream.clock, block->sequence)) return nullptr;
  ++stream_waits_;
  free.remove(*block);
  return block;
}

// Grows by one block, after reclaiming the chunks that are missing. Free blocks that become part of
// the new block are taken out first, so that they are not reclaimed.
HeapBlock* DeviceHeap::grow(HeapLock& lock, const Request& request, Reclaim missing) {
  Arena& arena = request.arena;
  for (const bool coarse : {true, false}) {
    const std::optional<Growth> growth = arena.begin_growth(request.bytes, request.stream, coarse);
    if (!growth) continue;
    const HeapState::ChunkTransfer transfer(state_);
    const std::size_t unmapped = state_.chunks.unmapped();
    if (missing != Reclaim::nothing && unmapped < growth->bytes) {
      const Pool* const only = missing == Reclaim::own_pool ? &request.pool : nullptr;
      try {
        reclaim(lock, growth->bytes - unmapped, only);
      } catch (const CudaError& error) {
        arena.cancel_growth(*growth);
        if (error.code() != kCudaOutOfMemory) throw;
        continue;
      } catch (...) {
        arena.cancel_growth(*growth);
        throw;
      }
    }
    if (HeapBlock* block = arena.finish_growth(lock, *growth)) return block;
  }
  return nullptr;
}

HeapBlock* DeviceHeap::reclaim_and_grow(HeapLock& lock, const Request& request) {
  if (request.arena.grows_by_chunks()) {
    if (HeapBlock* block = grow(lock, request, Reclaim::own_pool)) return block;
    if (HeapBlock* block = grow(lock, request, Reclaim::all_pools)) return block;
  }
  const std::size_t wanted = round_up(request.bytes, kFineChunkBytes);
  const std::size_t unmapped = state_.chunks.unmapped();
  if (unmapped < wanted && reclaim(lock, wanted - unmapped, nullptr) == 0) return nullptr;
  if (HeapBlock* block = grow(lock, request, Reclaim::nothing)) return block;
  return take_any(request);
}

HeapBlock* DeviceHeap::wait_and_take(HeapLock& lock, const Request& request) {
  bool waited = false;
  for (;;) {
    // Blocks that other threads freed meanwhile may be in their magazines.
    flush_magazines();
    // Waiting may synchronize the device, which would invalidate a capture.
    if (request.pool.serves_captures || !wait_for_oldest(lock)) break;
    if (!waited) ++state_.stats.num_sync_all_streams;
    waited = true;
    if (HeapBlock* block = take_any(request)) return block;
    if (HeapBlock* block = reclaim_and_grow(lock, request)) return block;
  }
  // No use is left to wait for. Unmapped chunks may be too coarse: the driver gets all memory back
  // and is asked for new chunks.
  reclaim(lock, kEverything, nullptr);
  release_unmapped(lock, kEverything);
  if (HeapBlock* block = grow(lock, request, Reclaim::nothing)) return block;
  return accept(request.arena, request.bytes,
                request.arena.free.take_exhaustive(request.bytes, request.stream,
                                                   !request.pool.serves_captures));
}

// Waits for the oldest use, of `only` if it is not null. False if there is no use that the host can
// wait for.
bool DeviceHeap::wait_for_oldest(HeapLock& lock, const Pool* only) {
  StreamUse use;
  for (const auto& pool : pools_) {
    if ((only != nullptr && only != pool.get()) || pool->is_pinned()) continue;
    if (use.clock == nullptr) use = pool->deferred.oldest();
  }
  for (const auto& pool : pools_) {
    if ((only != nullptr && only != pool.get()) || pool->is_pinned()) continue;
    for (const auto& arena : pool->arenas) {
      if (use.clock != nullptr) break;
      if (StreamBlocks* stream = arena->free.incomplete()) {
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
  promote_completed();
  return true;
}

// Waits for all uses that exist now. Uses that other threads add meanwhile are left out, since
// waiting for them might never end.
void DeviceHeap::wait_for_all(HeapLock& lock) {
  std::vector<StreamUse> uses;
  for (const auto& pool : pools_) {
    if (pool->is_pinned()) continue;
    pool->deferred.list_last(uses);
    for (const auto& arena : pool->arenas) arena->free.list_last(uses);
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
  promote_completed();
}

void DeviceHeap::flush_magazines() noexcept {
  HeapBlock* blocks = nullptr;
  ThreadCache::flush_all(*this, &blocks);
  insert_cached(blocks);
}

bool DeviceHeap::promote_completed() noexcept {
  bool any = release_held();
  for (const auto& pool : pools_) {
    if (pool->is_pinned()) continue;
    pool->deferred.promote_completed([&](HeapBlock& block) {
      count_deferred(block, false);
      insert_completed(block);
      any = true;
    });
    for (const auto& arena : pool->arenas) any |= arena->free.promote_completed();
  }
  return any;
}

void DeviceHeap::poll() noexcept {
  release_held();
  for (const auto& pool : pools_) {
    if (pool->is_pinned()) continue;
    pool->deferred.poll();
    pool->deferred.promote_completed([&](HeapBlock& block) {
      count_deferred(block, false);
      insert_completed(block);
    });
    for (const auto& arena : pool->arenas) arena->free.poll();
  }
}

// Takes chunks or segments from free blocks: of `only` if it is not null, else of all pools that
// allow it, the common pool first.
std::size_t DeviceHeap::reclaim(HeapLock& lock, std::size_t bytes, const Pool* only) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < pools_.size() && taken < bytes; ++i) {
    Pool& pool = *pools_[i];
    const bool is_asked = only != nullptr ? only == &pool : pool.serves_others();
    if (pool.released || pool.is_pinned() || !is_asked) continue;
    for (const auto& arena : pool.arenas) {
      if (taken < bytes) taken += arena->reclaim(lock, bytes - taken);
    }
  }
  return taken;
}

void DeviceHeap::release_unmapped(HeapLock& lock, std::size_t bytes) {
  const HeapState::ChunkTransfer transfer(state_);
  lock.unlock();
  state_.chunks.release_unmapped(bytes);
  lock.lock();
  state_.refresh_reserved();
}

// Above the threshold, releases free memory until the threshold is met.
void DeviceHeap::collect_garbage(HeapLock& lock) {
  if (state_.config.gc_threshold <= 0) return;
  const std::size_t total = device_properties(Device::cuda(state_.device)).total_memory;
  const auto target = static_cast<std::size_t>(
      state_.config.gc_threshold * static_cast<double>(std::min(state_.limit(), total)));
  const std::size_t held = state_.chunks.held() + state_.segment_bytes;
  if (held <= target) return;
  reclaim(lock, held - target, nullptr);
  release_unmapped(lock, held - target);
}

OomReport DeviceHeap::oom_report() {
  update_stats();
  OomReport report;
  report.allocated = state_.stats.allocated_bytes.all.current;
  report.reserved = state_.stats.reserved_bytes.all.current;
  report.limbo = limbo_bytes_;
  report.pending = state_.stats.active_bytes.all.current - report.allocated - report.limbo;
  report.limit = signed_bytes(state_.limit());
  report.largest_free = signed_bytes(largest_free());
  for (const auto& pool : pools_) {
    for (const auto& [clock, bytes] : pool->deferred.waiting()) {
      report.pending_by_stream.emplace_back(clock->id(), signed_bytes(bytes));
    }
    for (const auto& arena : pool->arenas) {
      if (pool->serves_others() && !pool->released) continue;
      HeldSegments held;
      arena->describe(held);
      for (const SegmentInfo& segment : held.segments) {
        if (pool->released) {
          report.released += signed_bytes(segment.allocated_bytes);
        } else {
          report.private_pools += signed_bytes(segment.total_bytes);
        }
      }
    }
  }
  return report;
}

void DeviceHeap::report_out_of_memory(HeapLock& lock, const Request& request) {
  report_out_of_memory(lock, request.bytes, request.stream.clock.id(), {});
}

void DeviceHeap::report_out_of_memory(std::size_t bytes, std::string_view purpose) {
  HeapLock lock(state_.mutex);
  report_out_of_memory(lock, bytes, 0, purpose);
}

void DeviceHeap::report_out_of_memory(HeapLock& lock, std::size_t bytes, std::uint64_t stream,
                                      std::string_view purpose) {
  ++state_.stats.num_ooms;
  OomReport report = oom_report();
  report.requested = signed_bytes(bytes);
  lock.unlock();
  if (recording_history()) {
    const std::size_t free = driver().memory_info(state_.device).free;
    record_trace(state_.device, TraceAction::oom, free, bytes, stream, capture_call_site());
    report.top_call_sites = top_call_sites();
  }
  throw_oom(std::move(report), purpose);
}

void DeviceHeap::throw_oom(OomReport report, std::string_view purpose) const {
  const NativeMemoryInfo info = driver().memory_info(state_.device);
  report.total = static_cast<std::int64_t>(info.total);
  report.free = static_cast<std::int64_t>(info.free);
  report.limit = std::min(report.limit, report.total);
  for (const auto& [process, bytes] : limbo_by_consumer(state_.device)) {
    report.limbo_by_process.emplace_back(process, signed_bytes(bytes));
  }
  throw_out_of_memory(state_.device, report,
                      backing_ == HeapBacking::segments && state_.stats.max_split_size < 0,
                      purpose);
}

bool DeviceHeap::release_unused() {
  HeapLock lock(state_.mutex);
  flush_magazines();
  poll();
  reclaim(lock, kEverything, nullptr);
  release_unmapped(lock, kEverything);
  return std::ranges::any_of(pools_, [](const auto& pool) { return has_incomplete(*pool); });
}

// The call sites of the program with the most bytes in use.
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
