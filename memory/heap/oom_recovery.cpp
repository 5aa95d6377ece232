#include "memory/heap/oom_recovery.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <gantry/device/properties.hpp>

#include "memory/heap/memory_pressure.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/oom_report.hpp"
#include "memory/source/exportable.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

// Attempts of a request while other threads hold memory in transition.
constexpr int kRetries = 16;
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
HeapBlock& OomRecovery::allocate(HeapLock& lock, const Request& request) {
  if (HeapBlock* block = take_ordered(request)) return *block;
  frees_.poll();
  if (HeapBlock* block = take_any(request)) return *block;
  collect_garbage(lock);
  if (HeapBlock* block = grow(lock, request, Reclaim::nothing)) return *block;

  ++state_.stats.num_alloc_retries;
  ThreadCache::flush_blocks(state_);
  frees_.poll();
  if (HeapBlock* block = take_any(request)) return *block;
  if (HeapBlock* block = take_with_wait(request)) return *block;
  if (HeapBlock* block = reclaim_and_grow(lock, request)) return *block;
  lock.unlock();
  const bool freed = run_memory_pressure_callbacks(state_.device);
  lock.lock();
  if (freed) {
    ThreadCache::flush_blocks(state_);
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
  request.pool.check_has_physical();  // another thread may have released it meanwhile
  report(lock, request.bytes, request.stream.clock.id(), {});
}

// Waits for pending transfers. True if other threads completed some since there were `before`.
bool OomRecovery::wait_for_transfers(HeapLock& lock, std::uint64_t before) {
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

// A free block of another stream that the request's stream is ordered after.
HeapBlock* OomRecovery::take_ordered(const Request& request) noexcept {
  if (request.pool.serves_captures) return nullptr;
  return request.arena.accept(request.arena.free.take_ordered(request.bytes, request.stream),
                              request.bytes);
}

HeapBlock* OomRecovery::take_any(const Request& request) noexcept {
  if (HeapBlock* block = request.arena.take(request.bytes, request.stream)) return block;
  return take_ordered(request);
}

HeapBlock* OomRecovery::take_with_wait(const Request& request) {
  if (request.pool.serves_captures) return nullptr;
  FreeBlocks& free = request.arena.free;
  HeapBlock* block = free.find_with_event_wait(request.bytes, request.stream);
  if (block == nullptr || !request.arena.may_serve(block->bytes, request.bytes)) return nullptr;
  if (!block->stream->clock.make_wait(request.stream.clock, block->sequence)) return nullptr;
  stats_.count_stream_wait();
  free.remove(*block);
  return block;
}

// Grows by one block, after reclaiming the chunks that are missing. Free blocks that become part of
// the new block are taken out first, so that they are not reclaimed.
HeapBlock* OomRecovery::grow(HeapLock& lock, const Request& request, Reclaim missing) {
  Arena& arena = request.arena;
  for (const bool coarse : {true, false}) {
    const std::optional<Growth> growth = arena.begin_growth(request.bytes, request.stream, coarse);
    if (!growth) continue;
    const HeapState::ChunkTransfer transfer(state_);
    const std::size_t unmapped = state_.chunks.unmapped();
    if (missing != Reclaim::nothing && unmapped < growth->bytes) {
      const Pool* const only = missing == Reclaim::own_pool ? &request.pool : nullptr;
      try {
        pools_.reclaim(lock, growth->bytes - unmapped, only);
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

HeapBlock* OomRecovery::reclaim_and_grow(HeapLock& lock, const Request& request) {
  if (request.arena.grows_by_chunks()) {
    if (HeapBlock* block = grow(lock, request, Reclaim::own_pool)) return block;
    if (HeapBlock* block = grow(lock, request, Reclaim::all_pools)) return block;
  }
  const std::size_t wanted = round_up(request.bytes, kFineChunkBytes);
  const std::size_t unmapped = state_.chunks.unmapped();
  if (unmapped < wanted && pools_.reclaim(lock, wanted - unmapped) == 0) return nullptr;
  if (HeapBlock* block = grow(lock, request, Reclaim::nothing)) return block;
  return take_any(request);
}

HeapBlock* OomRecovery::wait_and_take(HeapLock& lock, const Request& request) {
  bool waited = false;
  for (;;) {
    // Blocks that other threads freed meanwhile may be in their magazines.
    ThreadCache::flush_blocks(state_);
    // Waiting may synchronize the device, which would invalidate a capture.
    if (request.pool.serves_captures || !frees_.wait_for_oldest(lock)) break;
    if (!waited) ++state_.stats.num_sync_all_streams;
    waited = true;
    if (HeapBlock* block = take_any(request)) return block;
    if (HeapBlock* block = reclaim_and_grow(lock, request)) return block;
  }
  // No use is left to wait for. Unmapped chunks may be too coarse: the driver gets all memory back
  // and is asked for new chunks.
  pools_.reclaim(lock, kEverything);
  state_.release_unmapped(lock, kEverything);
  if (HeapBlock* block = grow(lock, request, Reclaim::nothing)) return block;
  return request.arena.accept(request.arena.free.take_exhaustive(request.bytes, request.stream,
                                                                 !request.pool.serves_captures),
                              request.bytes);
}

// Above the threshold, releases free memory until the threshold is met.
void OomRecovery::collect_garbage(HeapLock& lock) {
  if (state_.config.gc_threshold <= 0) return;
  const std::size_t total = device_properties(Device::cuda(state_.device)).total_memory;
  const auto target = static_cast<std::size_t>(
      state_.config.gc_threshold * static_cast<double>(std::min(state_.limit(), total)));
  const std::size_t held = state_.chunks.held() + state_.segment_bytes;
  if (held <= target) return;
  pools_.reclaim(lock, held - target);
  state_.release_unmapped(lock, held - target);
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
