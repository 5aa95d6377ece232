#include "memory/source/vmm_arena.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "memory/heap/device_heap.hpp"
#include "memory/heap/poison.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

// Blocks keep their places while memory moves, so free addresses can be scattered; see the replays
// in docs/memory.md. A process has addresses for some hundred times an H200's memory, which private
// pools, of which there may be many, have to share.
constexpr std::size_t kRangePerMemory = 4;
constexpr std::size_t kPrivateRangePerMemory = 1;
constexpr int kCudaOutOfMemory = 2;

bool is_use(const HeapBlock* block, BlockUse use) {
  return block != nullptr && block->use.load(std::memory_order_relaxed) == use;
}

}  // namespace

// Where addresses run out, a shorter range does, if it has room for `needed` bytes.
void VmmArena::open_range(std::size_t needed) {
  if (range_ != nullptr) return;
  const std::size_t memory = device_properties(Device::cuda(core_.device)).total_memory;
  core_.slab.reserve(1);
  std::size_t bytes = (owner().id == 0 ? kRangePerMemory : kPrivateRangePerMemory) * memory;
  while (range_ == nullptr) {
    bytes = round_up(bytes, kCoarseChunkBytes);
    try {
      range_ = std::make_unique<AddressRange>(core_.device, bytes);
    } catch (const CudaError& error) {
      bytes /= 2;
      if (error.code() != kCudaOutOfMemory || bytes < std::max(needed, kCoarseChunkBytes)) throw;
    }
  }
  HeapBlock& all = core_.slab.take();
  all.data = range_->base();
  all.bytes = range_->bytes();
  all.arena = this;
  all.previous = nullptr;
  first_ = &all;
  return_hole(all);
}

// Joins a block without memory with holes beside it.
void VmmArena::return_hole(HeapBlock& block) noexcept {
  HeapBlock* whole = &block;
  block.stream = nullptr;
  if (HeapBlock* next = block.next; is_use(next, BlockUse::hole)) {
    holes_.remove(*next);
    absorb_next(block);
    core_.slab.give_back(*next);
  }
  if (HeapBlock* previous = block.previous; is_use(previous, BlockUse::hole)) {
    holes_.remove(*previous);
    absorb_next(*previous);
    core_.slab.give_back(block);
    whole = previous;
  }
  whole->use.store(BlockUse::hole, std::memory_order_relaxed);
  holes_.insert(*whole);
}

HeapBlock* VmmArena::grow(HeapLock& lock, std::size_t bytes, StreamBlocks& stream,
                          const Harvest& harvest) {
  open_range(bytes);
  if (bytes > range_->bytes() || owner().parked) return nullptr;
  const auto try_growing = [&](std::size_t wanted, bool coarse) -> HeapBlock* {
    core_.slab.reserve(4);
    const Place place = find_place(wanted, stream);
    return place.hole == nullptr ? nullptr : grow_at(lock, place, coarse, harvest);
  };
  if (is_roomy()) {
    if (HeapBlock* block = try_growing(round_up(bytes, kCoarseChunkBytes), true)) return block;
  }
  return try_growing(bytes, bytes >= kCoarseBlockBytes);
}

// Mapping costs the same for any chunk size, so large blocks come in coarse chunks while nobody set
// a limit and the device is less than half full. What fine chunks save is needed later.
bool VmmArena::is_roomy() const {
  const std::size_t total = device_properties(Device::cuda(core_.device)).total_memory;
  return !owner().options.no_split && core_.fraction >= 1 && total >= 512 * kCoarseChunkBytes &&
         core_.chunks.held() < total / 2;
}

bool VmmArena::may_use(const HeapBlock* block, const StreamBlocks& stream) const noexcept {
  return is_use(block, BlockUse::free) && (block->stream == nullptr || block->stream == &stream);
}

// The place where the least has to be mapped: in a hole that is large enough by itself, or between
// free blocks that this stream may use.
VmmArena::Place VmmArena::find_place(std::size_t bytes, const StreamBlocks& stream) const noexcept {
  Place best;
  best.bytes = round_up(bytes, kFineChunkBytes);
  best.hole = holes_.find(best.bytes);
  if (best.hole != nullptr && may_use(best.hole->previous, stream)) {
    improve(best, *best.hole->previous, bytes, stream);
  }
  // Smaller blocks save too little to look at all of them.
  constexpr int kCandidates = 64;
  int candidates = 0;
  const auto consider = [&](HeapBlock& block) {
    improve(best, block, bytes, stream);
    return ++candidates < kCandidates;
  };
  free.for_each_common(bytes / 2, consider);
  candidates = 0;
  stream.free.for_each(bytes / 2, consider);
  return best;
}

// Takes `block`, which the stream may use, and the holes beside it if that is better than `best`.
void VmmArena::improve(Place& best, HeapBlock& block, std::size_t bytes,
                       const StreamBlocks& stream) const noexcept {
  const auto consider = [&](const Place& place) {
    const std::size_t there = (place.left != nullptr ? place.left->bytes : 0) +
                              (place.right != nullptr ? place.right->bytes : 0);
    const std::size_t need =
        there >= bytes ? kFineChunkBytes : round_up(bytes - there, kFineChunkBytes);
    // With a block on both sides, everything between them has to be mapped.
    const bool both = place.left != nullptr && place.right != nullptr;
    const std::size_t mapped = both ? place.hole->bytes : need;
    if (need > place.hole->bytes || (best.hole != nullptr && mapped >= best.bytes)) return;
    best = place;
    best.bytes = mapped;
    best.at_the_end = place.left == nullptr;
  };
  if (HeapBlock* hole = block.next; is_use(hole, BlockUse::hole)) {
    consider({.left = &block, .hole = hole});
    if (may_use(hole->next, stream)) consider({.left = &block, .hole = hole, .right = hole->next});
  }
  if (HeapBlock* hole = block.previous; is_use(hole, BlockUse::hole)) {
    consider({.hole = hole, .right = &block});
  }
}

HeapBlock* VmmArena::grow_at(HeapLock& lock, const Place& place, bool coarse,
                             const Harvest& harvest) {
  HeapBlock* hole = place.hole;
  holes_.remove(*hole);
  if (hole->bytes > place.bytes) {
    HeapBlock& rest = core_.slab.take();
    cut_block(*hole, place.at_the_end ? hole->bytes - place.bytes : place.bytes, rest);
    HeapBlock& kept = place.at_the_end ? *std::exchange(hole, &rest) : rest;
    kept.use.store(BlockUse::hole, std::memory_order_relaxed);
    holes_.insert(kept);
  }
  hole->use.store(BlockUse::mapping, std::memory_order_relaxed);
  if (place.left != nullptr) free.remove(*place.left);
  if (place.right != nullptr) free.remove(*place.right);

  const HeapCore::Move move(core_);
  ++movements_;
  const std::size_t limit = core_.limit();
  std::vector<Chunk> chunks;
  std::exception_ptr failure;
  bool mapped = false;
  try {
    if (harvest) harvest(lock, place.bytes);
    lock.unlock();
    chunks = core_.chunks.acquire(place.bytes, limit, coarse);
    if (!chunks.empty()) {
      range_->map(offset_of(hole->data), chunks);
      mapped = true;
    }
  } catch (const CudaError& error) {
    if (error.code() != kCudaOutOfMemory) failure = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
  if (mapped && poisons_device_memory()) poison_now(hole->data, place.bytes);
  if (!mapped) core_.chunks.give_back(std::move(chunks));
  if (!lock.owns_lock()) lock.lock();
  --movements_;
  recount();
  if (!mapped) {
    return_hole(*hole);
    if (place.left != nullptr) free.insert(*place.left);
    if (place.right != nullptr) free.insert(*place.right);
    if (failure) std::rethrow_exception(failure);
    return nullptr;
  }
  record(TraceAction::segment_map, *hole);
  hole->use.store(BlockUse::moving, std::memory_order_relaxed);
  return join(place.left, *hole, place.right);
}

// One block of neighbours that are all `moving`, safe for the stream that they were taken for.
HeapBlock* VmmArena::join(HeapBlock* left, HeapBlock& middle, HeapBlock* right) noexcept {
  HeapBlock* whole = left != nullptr ? left : &middle;
  if (left == nullptr) middle.stream = nullptr;
  const auto absorb = [&](HeapBlock& next) {
    if (next.stream != nullptr) {
      whole->sequence =
          whole->stream != nullptr ? std::max(whole->sequence, next.sequence) : next.sequence;
      whole->stream = next.stream;
    }
    absorb_next(*whole);
    core_.slab.give_back(next);
  };
  if (left != nullptr) {
    middle.stream = nullptr;
    absorb(middle);
  }
  if (right != nullptr) absorb(*right);
  return whole;
}

// The common block to harvest next and the chunks of it: the smallest that has enough, else the one
// that has most.
HeapBlock* VmmArena::next_victim(std::size_t bytes, std::pair<std::size_t, std::size_t>& run) {
  HeapBlock* victim = nullptr;
  run = {0, 0};
  free.for_each_common(kFineChunkBytes, [&](HeapBlock& block) {
    const auto found = range_->whole_chunks(offset_of(block.data), offset_of(block.end()), bytes);
    if (found.second - found.first > run.second - run.first) {
      victim = &block;
      run = found;
    }
    // Whoever wants everything takes it in any order, without looking at all blocks each time.
    return bytes >= range_->bytes() ? victim == nullptr : run.second - run.first < bytes;
  });
  return victim;
}

std::size_t VmmArena::harvest(HeapLock& lock, std::size_t bytes) {
  const std::size_t taken = unmap_free(lock, bytes, false);
  core_.harvested_bytes += taken;
  return taken;
}

// Takes whole chunks from common blocks until they are `bytes`, or the pool is parked meanwhile.
std::size_t VmmArena::unmap_free(HeapLock& lock, std::size_t bytes, bool parked) {
  if (range_ == nullptr) return 0;
  std::size_t taken = 0;
  while (taken < bytes && owner().parked == parked) {
    core_.slab.reserve(2);
    std::pair<std::size_t, std::size_t> run;
    HeapBlock* victim = next_victim(bytes - taken, run);
    if (victim == nullptr) break;
    HeapBlock& block = cut_out(*victim, run);
    const std::size_t size = block.bytes;
    // Before another thread can map the chunks elsewhere.
    record(TraceAction::segment_unmap, block);
    block.use.store(BlockUse::mapping, std::memory_order_relaxed);
    const HeapCore::Move move(core_);
    ++movements_;
    lock.unlock();
    try {
      core_.chunks.give_back(range_->unmap(run.first, size));
    } catch (...) {
      lock.lock();
      --movements_;
      record(TraceAction::segment_map, block);
      free.insert(block);
      throw;
    }
    lock.lock();
    --movements_;
    return_hole(block);
    recount();
    taken += size;
  }
  return taken;
}

// The part of a free block that covers `run`, `moving`; the rest stays free. Takes two of the slab.
HeapBlock& VmmArena::cut_out(HeapBlock& whole, const std::pair<std::size_t, std::size_t>& run) {
  HeapBlock* block = &whole;
  free.remove(*block);
  if (const std::size_t head = run.first - offset_of(block->data); head > 0) {
    HeapBlock& rest = core_.slab.take();
    cut_block(*block, head, rest);
    free.insert(*std::exchange(block, &rest));
  }
  if (const std::size_t size = run.second - run.first; block->bytes > size) {
    HeapBlock& rest = core_.slab.take();
    cut_block(*block, size, rest);
    block->use.store(BlockUse::moving, std::memory_order_relaxed);
    free.insert(rest);
  }
  return *block;
}

void VmmArena::record(TraceAction action, const HeapBlock& block) const noexcept {
  record_trace(core_.device, action, reinterpret_cast<std::uintptr_t>(block.data), block.bytes, 0,
               segment_call_site(action));
}

void VmmArena::recount() {
  const std::size_t bytes = range_->mapped();
  const std::size_t runs = range_->runs();
  if (is_small()) core_.small_bytes += bytes - counted_bytes_;
  count_segments(counted_runs_, runs);
  counted_bytes_ = bytes;
  counted_runs_ = runs;
  core_.refresh_reserved();
}

void VmmArena::describe(HeldSegments& held) const {
  bool in_segment = false;
  for (const HeapBlock* block = first_; block != nullptr; block = block->next) {
    const bool has_memory = !is_use(block, BlockUse::hole) && !is_use(block, BlockUse::mapping);
    if (has_memory && !in_segment) {
      // Many callers extend a range, so none of them is to be named.
      describe_segment(block->data, 0, held);
      held.segments.back().is_expandable = true;
    }
    if (has_memory) describe_block(*block, held);
    in_segment = has_memory;
  }
}

BlockExtent VmmArena::pin(HeapLock&, const HeapBlock& block) {
  if (owner().parked) {
    throw InvalidArgument(
        "export_ipc: a block of a pool with memory was expected, but got one of a pool that is "
        "parked");
  }
  const std::size_t begin = offset_of(block.data);
  const AddressRange::Extent memory = range_->extent(begin, begin + block.bytes);
  BlockExtent extent;
  extent.offset = begin - memory.offset;
  for (const Chunk& chunk : memory.chunks) {
    extent.chunks.push_back({chunk.native, chunk.bytes});
    extent.bytes += chunk.bytes;
  }
  PinnedExtent& known = pinned_[{memory.offset, memory.offset + extent.bytes}];
  if (known.pins == 0) known.id = new_extent_id();
  extent.extent_id = known.id;
  range_->pin(begin, begin + block.bytes);
  ++known.pins;
  return extent;
}

void VmmArena::unpin(const HeapBlock& block) noexcept {
  const std::size_t begin = offset_of(block.data);
  const auto [first, last] = range_->bounds(begin, begin + block.bytes);
  if (const auto known = pinned_.find({first, last}); known != pinned_.end()) {
    if (--known->second.pins == 0) pinned_.erase(known);
  }
  range_->unpin(begin, begin + block.bytes);
}

void VmmArena::park(HeapLock& lock) {
  if (range_ == nullptr) return;
  // The pool is marked, so nobody begins anew.
  while (movements_ != 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  // Only what live blocks have is to come back.
  unmap_free(lock, range_->bytes(), true);
  const auto runs = range_->mapped_runs();
  lock.unlock();
  std::map<std::size_t, std::size_t> done;
  std::exception_ptr failure;
  for (const auto& [offset, bytes] : runs) {
    try {
      done.emplace(offset, offset + bytes);  // nothing may fail once the memory is gone
      core_.chunks.give_back(range_->unmap(offset, bytes));
    } catch (...) {
      done.erase(offset);
      failure = std::current_exception();
      break;
    }
  }
  core_.chunks.release_spare();
  lock.lock();
  parked_.merge(done);
  recount();
  if (failure) std::rethrow_exception(failure);
}

std::size_t VmmArena::parked_bytes() const {
  std::size_t sum = 0;
  for (const auto& [begin, end] : parked_) sum += end - begin;
  return sum;
}

bool VmmArena::unpark(HeapLock& lock) {
  const std::size_t limit = core_.limit();
  while (!parked_.empty()) {
    const auto run = std::prev(parked_.end());
    const auto [begin, end] = *run;
    lock.unlock();
    std::vector<Chunk> chunks;
    try {
      chunks = core_.chunks.acquire(end - begin, limit, end - begin >= kCoarseBlockBytes);
      if (!chunks.empty()) range_->map(begin, chunks);
    } catch (...) {
      core_.chunks.give_back(std::move(chunks));
      lock.lock();
      throw;
    }
    lock.lock();
    recount();
    if (chunks.empty()) return false;
    parked_.erase(run);
  }
  return true;
}

void VmmArena::forget_unused() {
  for (;;) {
    core_.slab.reserve(2);
    HeapBlock* block = nullptr;
    std::pair<std::size_t, std::size_t> run;
    free.for_each_common(kFineChunkBytes, [&](HeapBlock& candidate) {
      run = parked_part(candidate);
      if (run.first < run.second) block = &candidate;
      return block == nullptr;
    });
    if (block == nullptr) return;
    const auto parked = std::prev(parked_.upper_bound(run.first));
    if (run.second < parked->second) parked_.emplace(run.second, parked->second);
    parked->second = run.first;
    if (parked->first == run.first) parked_.erase(parked);
    return_hole(cut_out(*block, run));
  }
}

// The first parked whole chunks inside of a block: {begin, end}, equal if there are none.
std::pair<std::size_t, std::size_t> VmmArena::parked_part(const HeapBlock& block) const noexcept {
  const std::size_t first = round_up(offset_of(block.data), kFineChunkBytes);
  const std::size_t last = offset_of(block.end()) / kFineChunkBytes * kFineChunkBytes;
  auto run = parked_.upper_bound(first);
  if (run != parked_.begin() && std::prev(run)->second > first) --run;
  if (run == parked_.end() || run->first >= last) return {};
  return {std::max(first, run->first), std::min(last, run->second)};
}

}  // namespace gantry::memory
