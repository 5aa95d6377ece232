#include "memory/source/vmm_arena.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "memory/heap/poison.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {
namespace {

// Blocks keep their addresses while chunks are remapped, so free addresses can be scattered; see
// the replays in docs/memory.md. A process has addresses for some hundred times an H200's memory,
// and all private pools share them.
constexpr std::size_t kRangePerMemory = 4;
constexpr std::size_t kPrivateRangePerMemory = 1;

bool is_use(const HeapBlock* block, BlockUse use) {
  return block != nullptr && block->use.load(std::memory_order_relaxed) == use;
}

}  // namespace

// Where addresses are scarce, a shorter range does if it has room for `needed` bytes.
void VmmArena::open_range(std::size_t needed) {
  if (range_ != nullptr) return;
  const std::size_t memory = device_properties(Device::cuda(state_.device)).total_memory;
  state_.slab.reserve(1);
  std::size_t bytes = (owner().id == 0 ? kRangePerMemory : kPrivateRangePerMemory) * memory;
  while (range_ == nullptr) {
    bytes = round_up(bytes, kCoarseChunkBytes);
    try {
      range_ = std::make_unique<AddressRange>(state_.device, bytes);
    } catch (const CudaError& error) {
      bytes /= 2;
      if (error.code() != kCudaOutOfMemory || bytes < std::max(needed, kCoarseChunkBytes)) throw;
    }
  }
  HeapBlock& all = state_.slab.take();
  all.data = range_->base();
  all.bytes = range_->bytes();
  all.arena = this;
  all.previous = nullptr;
  first_ = &all;
  free_hole(all);
}

// Joins a block without memory with holes beside it.
void VmmArena::free_hole(HeapBlock& block) noexcept {
  HeapBlock* whole = &block;
  block.stream = nullptr;
  if (HeapBlock* next = block.next; is_use(next, BlockUse::hole)) {
    holes_.remove(*next);
    absorb_next(block);
    state_.slab.recycle(*next);
  }
  if (HeapBlock* previous = block.previous; is_use(previous, BlockUse::hole)) {
    holes_.remove(*previous);
    absorb_next(*previous);
    state_.slab.recycle(block);
    whole = previous;
  }
  whole->use.store(BlockUse::hole, std::memory_order_relaxed);
  holes_.insert(*whole);
}

std::optional<Growth> VmmArena::begin_growth(std::size_t bytes, const StreamBlocks& stream,
                                             bool coarse) {
  open_range(bytes);
  if (bytes > range_->bytes() || owner().released || (coarse && !is_roomy())) return std::nullopt;
  state_.slab.reserve(4);
  Growth growth = find_smallest_growth(coarse ? round_up(bytes, kCoarseChunkBytes) : bytes, stream);
  if (growth.hole == nullptr) return std::nullopt;
  growth.coarse = coarse || bytes >= kCoarseBlockBytes;
  holes_.remove(*growth.hole);
  if (growth.hole->bytes > growth.bytes) {
    HeapBlock& remainder = state_.slab.take();
    HeapBlock* unused = &remainder;
    split_block(*growth.hole, growth.at_the_end ? growth.hole->bytes - growth.bytes : growth.bytes,
                remainder);
    if (growth.at_the_end) std::swap(growth.hole, unused);
    unused->use.store(BlockUse::hole, std::memory_order_relaxed);
    holes_.insert(*unused);
  }
  growth.hole->use.store(BlockUse::mapping, std::memory_order_relaxed);
  if (growth.left != nullptr) free.remove(*growth.left);
  if (growth.right != nullptr) free.remove(*growth.right);
  ++pending_mappings_;
  return growth;
}

HeapBlock* VmmArena::finish_growth(HeapLock& lock, const Growth& growth) {
  HeapBlock& hole = *growth.hole;
  const std::size_t limit = state_.limit();
  std::vector<Chunk> chunks;
  std::exception_ptr failure;
  bool mapped = false;
  lock.unlock();
  try {
    chunks = state_.chunks.acquire(growth.bytes, limit, growth.coarse);
    if (!chunks.empty()) {
      range_->map(offset_of(hole.data), chunks);
      mapped = true;
    }
  } catch (const CudaError& error) {
    if (error.code() != kCudaOutOfMemory) failure = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
  if (mapped && poisons_device_memory()) poison_now(hole.data, growth.bytes);
  if (!mapped) state_.chunks.recycle(std::move(chunks));
  lock.lock();
  if (!mapped) {
    cancel_growth(growth);
    if (failure) std::rethrow_exception(failure);
    return nullptr;
  }
  --pending_mappings_;
  recount();
  record(TraceAction::segment_map, hole);
  hole.use.store(BlockUse::in_transition, std::memory_order_relaxed);
  return join(growth.left, hole, growth.right);
}

void VmmArena::cancel_growth(const Growth& growth) noexcept {
  --pending_mappings_;
  recount();
  free_hole(*growth.hole);
  if (growth.left != nullptr) free.insert(*growth.left);
  if (growth.right != nullptr) free.insert(*growth.right);
}

// Mapping costs the same for any chunk size. So growth is coarse while no limit is set and less
// than half of the device is held; later the memory that fine chunks save counts more.
bool VmmArena::is_roomy() const {
  const std::size_t total = device_properties(Device::cuda(state_.device)).total_memory;
  return !owner().options.no_split && state_.fraction >= 1 && total >= 512 * kCoarseChunkBytes &&
         state_.chunks.held() < total / 2;
}

bool VmmArena::may_use(const HeapBlock* block, const StreamBlocks& stream) const noexcept {
  return is_use(block, BlockUse::free) && (block->stream == nullptr || block->stream == &stream);
}

// The growth that maps the least: in a hole that is large enough by itself, or between free blocks
// that this stream may use.
Growth VmmArena::find_smallest_growth(std::size_t bytes,
                                      const StreamBlocks& stream) const noexcept {
  Growth best;
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

// Replaces `best` if growing `block`, which the stream may use, into a hole next to it maps less.
void VmmArena::improve(Growth& best, HeapBlock& block, std::size_t bytes,
                       const StreamBlocks& stream) const noexcept {
  const auto consider = [&](const Growth& place) {
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

// One block of neighbours that are all `in_transition`, safe for the stream of the request.
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
    state_.slab.recycle(next);
  };
  if (left != nullptr) {
    middle.stream = nullptr;
    absorb(middle);
  }
  if (right != nullptr) absorb(*right);
  return whole;
}

// The common block to reclaim from next, and its run of whole chunks: the smallest block with
// enough chunks, else the one with most.
HeapBlock* VmmArena::next_victim(std::size_t bytes, std::pair<std::size_t, std::size_t>& run) {
  HeapBlock* victim = nullptr;
  run = {0, 0};
  free.for_each_common(kFineChunkBytes, [&](HeapBlock& block) {
    const auto found = range_->whole_chunks(offset_of(block.data), offset_of(block.end()), bytes);
    if (found.second - found.first > run.second - run.first) {
      victim = &block;
      run = found;
    }
    // All memory is taken in any order, without visiting all blocks each time.
    return bytes >= range_->bytes() ? victim == nullptr : run.second - run.first < bytes;
  });
  return victim;
}

std::size_t VmmArena::reclaim(HeapLock& lock, std::size_t bytes) {
  const std::size_t taken = unmap_free(lock, bytes, false);
  state_.reclaimed_bytes += taken;
  return taken;
}

// Unmaps whole chunks of common blocks until they are `bytes`, while Pool::released is `released`.
std::size_t VmmArena::unmap_free(HeapLock& lock, std::size_t bytes, bool released) {
  if (range_ == nullptr) return 0;
  std::size_t taken = 0;
  while (taken < bytes && owner().released == released) {
    state_.slab.reserve(2);
    std::pair<std::size_t, std::size_t> run;
    HeapBlock* victim = next_victim(bytes - taken, run);
    if (victim == nullptr) break;
    HeapBlock& block = extract(*victim, run);
    const std::size_t size = block.bytes;
    // Before another thread can map the chunks elsewhere.
    record(TraceAction::segment_unmap, block);
    block.use.store(BlockUse::mapping, std::memory_order_relaxed);
    const HeapState::ChunkTransfer transfer(state_);
    ++pending_mappings_;
    lock.unlock();
    try {
      state_.chunks.recycle(range_->unmap(run.first, size));
    } catch (...) {
      lock.lock();
      --pending_mappings_;
      record(TraceAction::segment_map, block);
      free.insert(block);
      throw;
    }
    lock.lock();
    --pending_mappings_;
    free_hole(block);
    recount();
    taken += size;
  }
  return taken;
}

// The part of a free block that covers `run`, `in_transition`; the other parts stay free. Takes two
// descriptors.
HeapBlock& VmmArena::extract(HeapBlock& whole, const std::pair<std::size_t, std::size_t>& run) {
  HeapBlock* block = &whole;
  free.remove(*block);
  if (const std::size_t head = run.first - offset_of(block->data); head > 0) {
    HeapBlock& remainder = state_.slab.take();
    split_block(*block, head, remainder);
    free.insert(*std::exchange(block, &remainder));
  }
  if (const std::size_t size = run.second - run.first; block->bytes > size) {
    HeapBlock& remainder = state_.slab.take();
    split_block(*block, size, remainder);
    block->use.store(BlockUse::in_transition, std::memory_order_relaxed);
    free.insert(remainder);
  }
  return *block;
}

void VmmArena::record(TraceAction action, const HeapBlock& block) const noexcept {
  record_trace(state_.device, action, reinterpret_cast<std::uintptr_t>(block.data), block.bytes, 0,
               segment_call_site(action));
}

void VmmArena::recount() {
  const std::size_t runs = range_->runs();
  count_segments(counted_runs_, runs);
  counted_runs_ = runs;
  state_.refresh_reserved();
}

void VmmArena::describe(HeldSegments& held) const {
  bool in_segment = false;
  for (const HeapBlock* block = first_; block != nullptr; block = block->next) {
    const bool has_memory = !is_use(block, BlockUse::hole) && !is_use(block, BlockUse::mapping);
    if (has_memory && !in_segment) {
      // Many callers extend a range, so the segment has no call site.
      describe_segment(block->data, 0, held);
      held.segments.back().is_expandable = true;
    }
    if (has_memory) describe_block(*block, held);
    in_segment = has_memory;
  }
}

void VmmArena::check_can_release_physical() const {
  if (pinned_.empty()) return;
  throw InvalidArgument(
      "MemPool::release_physical: expected a pool without exported blocks, but got one that "
      "another "
      "process may use",
      Device::cuda(state_.device).str());
}

BlockExtent VmmArena::pin(HeapLock&, const HeapBlock& block) {
  if (owner().released) {
    throw InvalidArgument(
        "export_ipc: expected a block with physical memory, but got one of a pool that released "
        "it");
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

void VmmArena::release_physical(HeapLock& lock) {
  if (range_ == nullptr) return;
  // The pool is marked as released, so no growth begins.
  while (pending_mappings_ != 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  // Only the memory of live blocks is to be restored.
  unmap_free(lock, range_->bytes(), true);
  const auto runs = range_->mapped_runs();
  lock.unlock();
  std::map<std::size_t, std::size_t> done;
  std::exception_ptr failure;
  for (const auto& [offset, bytes] : runs) {
    try {
      done.emplace(offset, offset + bytes);  // before unmap: nothing may fail after it
      state_.chunks.recycle(range_->unmap(offset, bytes));
    } catch (...) {
      done.erase(offset);
      failure = std::current_exception();
      break;
    }
  }
  state_.chunks.release_unmapped();
  lock.lock();
  released_.merge(done);
  recount();
  if (failure) std::rethrow_exception(failure);
}

std::size_t VmmArena::released_bytes() const {
  std::size_t sum = 0;
  for (const auto& [begin, end] : released_) sum += end - begin;
  return sum;
}

bool VmmArena::restore_physical(HeapLock& lock) {
  const std::size_t limit = state_.limit();
  while (!released_.empty()) {
    const auto run = std::prev(released_.end());
    const auto [begin, end] = *run;
    lock.unlock();
    std::vector<Chunk> chunks;
    try {
      chunks = state_.chunks.acquire(end - begin, limit, end - begin >= kCoarseBlockBytes);
      if (!chunks.empty()) range_->map(begin, chunks);
    } catch (...) {
      state_.chunks.recycle(std::move(chunks));
      lock.lock();
      throw;
    }
    lock.lock();
    recount();
    if (chunks.empty()) return false;
    released_.erase(run);
  }
  return true;
}

void VmmArena::discard_unused() {
  for (;;) {
    state_.slab.reserve(2);
    HeapBlock* block = nullptr;
    std::pair<std::size_t, std::size_t> run;
    free.for_each_common(kFineChunkBytes, [&](HeapBlock& candidate) {
      run = released_part(candidate);
      if (run.first < run.second) block = &candidate;
      return block == nullptr;
    });
    if (block == nullptr) return;
    const auto released = std::prev(released_.upper_bound(run.first));
    if (run.second < released->second) released_.emplace(run.second, released->second);
    released->second = run.first;
    if (released->first == run.first) released_.erase(released);
    free_hole(extract(*block, run));
  }
}

// The first run of released whole chunks inside of a block: {begin, end}, equal if there is none.
std::pair<std::size_t, std::size_t> VmmArena::released_part(const HeapBlock& block) const noexcept {
  const std::size_t first = round_up(offset_of(block.data), kFineChunkBytes);
  const std::size_t last = offset_of(block.end()) / kFineChunkBytes * kFineChunkBytes;
  auto run = released_.upper_bound(first);
  if (run != released_.begin() && std::prev(run)->second > first) --run;
  if (run == released_.end() || run->first >= last) return {};
  return {std::max(first, run->first), std::min(last, run->second)};
}

}  // namespace gantry::memory
