#include "memory/heap/oom_recovery.hpp"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/device/properties.hpp>

#include "core/assert.hpp"
#include "device/peer_access.hpp"
#include "memory/arenas/exportable.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/history/history.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {
namespace {

// Attempts of a request while other threads hold memory in transition.
constexpr int kRetries = 64;
constexpr const Pool* kAllPools = nullptr;

}  // namespace

// Note [Out-of-memory recovery]
// If no free block of the stream fits, the steps go from cheap to expensive:
//   1. free blocks of other streams that this stream is ordered after (no driver call);
//   2. free blocks whose streams have completed (queries the driver, waits for nothing);
//   3. blocks in the magazines of threads;
//   4. new memory of the driver; above gc_threshold, free memory is released first, and above the
//      bound of Note [Reserved memory], it is used first;
//   5. a free block of another stream, after a wait that is inserted into this stream;
//   6. chunks of free blocks, remapped: of this pool, then of other pools that allow it;
//   7. memory that other processes have freed, and caches of layers above (memory_pressure.hpp);
//   8. with segments: free blocks of the other sizes, then a segment of no more than the request;
//   9. waiting on the host, oldest use first, until a block fits, or until the neighbour (backend
//      async) gives memory back; at last, all free memory is released to the driver, which then
//      gives new chunks;
//  10. another attempt, if other threads had memory in transition meanwhile;
//  11. functions of the program (memory_pressure.hpp), which may ask for another attempt;
//  12. an OutOfMemoryError.
// The lock is not held while waiting: the work may depend on threads that allocate.
// A captured stream cannot be waited for, so its blocks stay in use. Requests of captures skip
// steps 1 and 5, and in step 9 they wait only for events from before the capture; see Note [Memory
// of captures].
HeapBlock& OomRecovery::allocate(HeapLock& lock, Arena& arena, BlockRequest request) {
  GANTRY_ASSERT(lock.owns_lock(), "recovery begins without the lock of its heap");
  OomHandlerCalls calls(state_.device, request.size);
  do {
    if (HeapBlock* block = search(lock, arena, request)) {
      // The other arena's blocks of the stream exist: take_from_segments() made them.
      block->stream =
          block->arena == &arena ? &request.stream : &block->arena->free.of(request.stream.clock);
      return *block;
    }
    owner_of(arena).check_has_physical();  // another thread may have released it meanwhile
  } while (call_program(lock, calls, request.size));
  owner_of(arena).check_has_physical();
  report(lock, request.size, request.stream.clock.id(),
         owner_of(arena).serves_captures ? kCapturePurpose : std::string_view());
}

bool OomRecovery::call_program(HeapLock& lock, OomHandlerCalls& calls, std::size_t bytes) {
  if (bytes > state_.limit()) return false;
  const Unlocked unlocked(lock);
  return calls.run([&] {
    const auto free = signed_bytes(driver().memory_info(state_.device).free);
    const HeapLock again(state_.mutex);
    ThreadCache::flush_counts(state_);
    stats_.update();
    return free - state_.stats.allocated_bytes.all.current;
  });
}

HeapBlock* OomRecovery::search(HeapLock& lock, Arena& arena, const BlockRequest& request) {
  if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
  frees_.poll();
  if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
  ThreadCache::flush_blocks(state_);
  frees_.poll();
  if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
  if (state_.config.gc_threshold > 0) collect_garbage(lock);
  if (HeapBlock* block = keep_bound(lock, arena, request)) return block;
  if (HeapBlock* block = grow(lock, arena, request)) return block;

  ++state_.stats.num_alloc_retries;
  ThreadCache::flush_blocks(state_);
  frees_.poll();
  if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
  if (HeapBlock* block = take_with_wait(arena, request)) return block;
  if (HeapBlock* block = reclaim_and_grow(lock, arena, request)) return block;
  bool freed = false;
  {
    const Unlocked unlocked(lock);
    freed = MemoryPressureCallbacks::instance().run(state_.device, Waiting::forbidden);
  }
  if (freed) {
    ThreadCache::flush_blocks(state_);
    if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
  }
  if (HeapBlock* block = take_from_segments(lock, arena, request)) return block;
  std::uint64_t before = 0;
  int attempts = 0;
  do {
    before = state_.transfers.begin_attempt();
    if (HeapBlock* block = wait_and_take(lock, arena, request)) return block;
  } while (attempts++ < kRetries &&
           state_.transfers.wait(lock, before, HeapState::ChunkTransfer::count_of_thread(state_),
                                 clock_));
  return nullptr;
}

HeapBlock* OomRecovery::take_with_wait(Arena& arena, const BlockRequest& request) {
  if (owner_of(arena).serves_captures) return nullptr;
  HeapBlock* block = arena.free.find_with_event_wait(request.size, request.stream);
  if (block == nullptr || !arena.may_serve(*block, request.size)) return nullptr;
  if (!block->stream->clock.make_wait(request.stream.clock, block->sequence)) return nullptr;
  stats_.count_stream_wait();
  return &arena.take(*block, request);
}

// See Note [Reserved memory]. A block made of memory that the heap holds; nullptr if it may grow.
HeapBlock* OomRecovery::keep_bound(HeapLock& lock, Arena& arena, const BlockRequest& request) {
  if (request.size > state_.limit()) return nullptr;  // it will fail, and would raise the bound
  const bool has_chunks = owner_of(arena).backing == HeapBacking::vmm;
  // A segment or a coarse chunk may be larger than its block, once.
  std::size_t kept = arena.growth_slack();
  const auto excess = [&] {
    const std::size_t wanted = add_saturated(state_.reserved(), arena.growth_bytes(request.size));
    const std::size_t above = bound_.excess(wanted);
    return above - std::min(above, kept);
  };
  bound_.note_use(add_saturated(stats_.bytes_in_use(), request.size));
  if (excess() == 0) return nullptr;
  // Free memory that others may not take comes on top.
  kept += HeapStats::idle_private_bytes(pools_);
  if (excess() == 0) return nullptr;
  if (HeapBlock* block = await_completion(lock, arena, request)) return block;
  if (has_chunks) return remap(lock, arena, request);
  if (!pools_.has_releasable()) return nullptr;
  bool is_idle = false;
  {
    const Unlocked unlocked(lock);
    std::vector<int> devices = devices_with_access_to(state_.device);
    devices.push_back(state_.device);
    is_idle = await_idle(devices);
  }
  if (is_idle) pools_.reclaim(lock, excess());
  return arena.take(request, Search::ordered);
}

// Work that is short ends sooner than the driver gives memory. A block that it used serves then.
HeapBlock* OomRecovery::await_completion(HeapLock& lock, Arena& arena,
                                         const BlockRequest& request) {
  constexpr auto kTimeout = std::chrono::milliseconds(1);
  constexpr auto kLook = std::chrono::microseconds(20);
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  const auto is_incomplete = [](const auto& pool) {
    return !pool->is_pinned() && pool->has_incomplete();
  };
  while (std::ranges::any_of(pools_, is_incomplete)) {
    if (std::chrono::steady_clock::now() > deadline) break;
    {
      const Unlocked unlocked(lock);
      std::this_thread::sleep_for(kLook);
    }
    frees_.poll();
    if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
  }
  return nullptr;
}

// Grows by new memory.
HeapBlock* OomRecovery::grow(HeapLock& lock, Arena& arena, const BlockRequest& request) {
  Growth growth;
  return arena.grow(lock, request, ChunkSource::driver, growth);
}

// Grows by unmapped chunks, then by `source` with chunks of free blocks: of this pool, then of all.
// The growth keeps the free blocks that become part of the new block, so that their chunks are not
// reclaimed.
HeapBlock* OomRecovery::grow_from_free(HeapLock& lock, Arena& arena, const BlockRequest& request,
                                       ChunkSource source, Growth& growth) {
  HeapBlock* block = arena.grow(lock, request, ChunkSource::unmapped, growth);
  for (const Pool* const only : std::initializer_list<const Pool*>{&owner_of(arena), kAllPools}) {
    if (block != nullptr || growth.missing == 0) break;
    const bool helps = pools_.reclaim(lock, growth.missing, only) != 0;
    if (helps || source == ChunkSource::driver) block = arena.grow(lock, request, source, growth);
  }
  return block;
}

// Grows by chunks of free blocks as far as there are some, else by new ones.
HeapBlock* OomRecovery::remap(HeapLock& lock, Arena& arena, const BlockRequest& request) {
  Growth growth;
  HeapBlock* block = grow_from_free(lock, arena, request, ChunkSource::unmapped, growth);
  if (block != nullptr || growth.missing == 0) return block;
  return arena.grow(lock, request, ChunkSource::driver, growth);
}

// Grows by chunks of free blocks and by new ones.
HeapBlock* OomRecovery::reclaim_and_grow(HeapLock& lock, Arena& arena,
                                         const BlockRequest& request) {
  {
    Growth growth;
    if (HeapBlock* block = grow_from_free(lock, arena, request, ChunkSource::driver, growth))
      return block;
  }
  const std::size_t wanted = round_up(request.size, kFineChunkBytes);
  const std::size_t unmapped = state_.chunks.unmapped();
  if (unmapped < wanted && pools_.reclaim(lock, wanted - unmapped) == 0) return nullptr;
  if (HeapBlock* block = grow(lock, arena, request)) return block;
  return arena.take(request, Search::ordered);
}

// Note [Last resort of segments]
// Segments of PyTorch's sizes leave memory that a request cannot have: small blocks are only in
// small segments, and a request below 10 MiB makes a segment of 20 MiB. Before a request waits or
// fails, it takes a free block of the pool's other arena, which gets the block back. Then the pool
// gives its own unused segments to the driver, and the request has a segment of its size. Such
// blocks are few, so they do not fragment memory in a program that stays below its limit.
HeapBlock* OomRecovery::take_from_segments(HeapLock& lock, Arena& arena,
                                           const BlockRequest& request) {
  Pool& pool = owner_of(arena);
  if (pool.backing != HeapBacking::segments) return nullptr;
  Arena& other = &arena == pool.small ? *pool.large : *pool.small;
  const BlockRequest elsewhere{request.bytes, request.alignment, request.size,
                               other.free.of(request.stream.clock)};
  if (HeapBlock* block = other.take(elsewhere, Search::exhaustive)) return block;
  pools_.reclaim(lock, kEverything, &pool);
  Growth growth;
  for (const std::size_t bytes : {round_up(request.size, kSegmentGrain), request.size}) {
    growth.segment_bytes = bytes;
    if (HeapBlock* block = arena.grow(lock, request, ChunkSource::driver, growth)) return block;
  }
  return arena.take(request, Search::exhaustive);
}

bool OomRecovery::wait_for_neighbour(HeapLock& lock, HostWait wait) const {
  MemoryNeighbour* const neighbour = neighbour_;
  if (neighbour == nullptr) return false;
  const Unlocked unlocked(lock);
  return neighbour->release_after_wait(wait);
}

HeapBlock* OomRecovery::wait_and_take(HeapLock& lock, Arena& arena, const BlockRequest& request) {
  bool waited = false;
  // Other waits may synchronize the device, which would invalidate the capture.
  const HostWait wait = owner_of(arena).serves_captures ? HostWait::behind_event : HostWait::anyhow;
  for (;;) {
    // Blocks that other threads freed meanwhile may be in their magazines.
    ThreadCache::flush_blocks(state_);
    // After the last wait, blocks may have moved to a stream without an event.
    if (wait == HostWait::behind_event) frees_.poll();
    if (!frees_.wait_for_oldest(lock, nullptr, wait) && !wait_for_neighbour(lock, wait)) break;
    if (!waited) ++state_.stats.num_sync_all_streams;
    waited = true;
    if (HeapBlock* block = arena.take(request, Search::ordered)) return block;
    if (HeapBlock* block = reclaim_and_grow(lock, arena, request)) return block;
    if (HeapBlock* block = take_from_segments(lock, arena, request)) return block;
  }
  // No use is left to wait for. What became free since the last attempt is in pieces, and unmapped
  // chunks may be too coarse. All of it goes to the driver, which then makes new chunks.
  pools_.release(lock);
  if (HeapBlock* block = grow(lock, arena, request)) return block;
  if (HeapBlock* block = take_from_segments(lock, arena, request)) return block;
  return arena.take(request, Search::exhaustive);
}

// Above the threshold, releases free memory until the threshold is met.
void OomRecovery::collect_garbage(HeapLock& lock) {
  const std::size_t total = device_properties(Device::cuda(state_.device)).total_memory;
  const auto target = static_cast<std::size_t>(
      state_.config.gc_threshold * static_cast<double>(std::min(state_.limit(), total)));
  const std::size_t held = state_.reserved();
  if (held > target) pools_.release(lock, held - target);
}

void OomRecovery::report(HeapLock& lock, std::size_t bytes, std::uint64_t stream,
                         std::string_view purpose) {
  ++state_.stats.num_ooms;
  OomReport report = stats_.oom_report(pools_);
  report.requested = signed_bytes(bytes);
  lock.unlock();
  if (recording_history()) {
    const std::size_t free = driver().memory_info(state_.device).free;
    record_trace(state_.device, TraceAction::oom, free, bytes, stream, capture_call_site());
    lock.lock();
    HeldSegments held = stats_.segments(pools_);
    lock.unlock();
    report.top_call_sites = top_call_sites(std::move(held));
  }
  throw_oom(std::move(report), purpose);
}

void OomRecovery::report_unrestored(HeapLock& lock, std::size_t bytes) {
  OomReport report = stats_.oom_report(pools_);
  report.requested = signed_bytes(bytes);
  lock.unlock();
  throw_oom(std::move(report), {});
}

void OomRecovery::throw_oom(OomReport report, std::string_view purpose) const {
  const NativeMemoryInfo info = driver().memory_info(state_.device);
  report.total = static_cast<std::int64_t>(info.total);
  report.free = static_cast<std::int64_t>(info.free);
  report.limit = std::min(report.limit, report.total);
  for (const auto& [process, bytes] : limbo_by_consumer(state_.device)) {
    report.limbo_by_process.emplace_back(process, signed_bytes(bytes));
  }
  throw_out_of_memory(state_.device, report,
                      pools_.backing() == HeapBacking::segments && state_.stats.max_split_size < 0,
                      purpose);
}

}  // namespace gantry::memory
