#include "memory/heap/pinned_heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include <gantry/core/error.hpp>

#include "memory/counters.hpp"
#include "memory/heap/poison.hpp"
#include "memory/heap/size_policy.hpp"
#include "memory/oom_report.hpp"

namespace gantry::memory {
namespace {

constexpr std::size_t kLeastSegment = std::size_t{1} << 20;
constexpr std::size_t kMostGrowth = std::size_t{64} << 20;
constexpr std::size_t kPage = 4096;

// Devices to shelves: one shelf per different node.
std::vector<std::size_t> shelves_of(const std::vector<int>& nodes) {
  std::vector<int> different;
  std::vector<std::size_t> shelves;
  for (const int node : nodes) {
    const auto found = std::find(different.begin(), different.end(), node);
    shelves.push_back(static_cast<std::size_t>(found - different.begin()));
    if (found == different.end()) different.push_back(node);
  }
  return shelves;
}

PinnedBlock& pinned(HeapBlock& block) { return static_cast<PinnedBlock&>(block); }

bool is_free(const HeapBlock* block) {
  return block != nullptr && block->use.load(std::memory_order_relaxed) == BlockUse::free;
}

class Stopwatch {
 public:
  [[nodiscard]] std::int64_t us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                                 begin_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void add_time(HostTimes& times, std::int64_t us) {
  times.min = times.count == 0 ? us : std::min(times.min, us);
  times.max = std::max(times.max, us);
  times.total += us;
  ++times.count;
}

}  // namespace

PinnedHeap::PinnedHeap(const std::vector<int>& nodes) : shelf_of_device_(shelves_of(nodes)) {
  for (std::size_t device = 0; device < nodes.size(); ++device) {
    if (shelf_of_device_[device] == shelves_.size()) shelves_.emplace_back().node = nodes[device];
  }
  if (shelves_.empty()) shelves_.emplace_back();
}

std::size_t PinnedHeap::shelf_of_current_device() const {
  if (shelves_.size() == 1) return 0;
  return shelf_of_device_[static_cast<std::size_t>(driver().current_device())];
}

PinnedBlock& PinnedHeap::allocate(std::size_t bytes) {
  const std::size_t size = block_bytes(bytes);
  const std::size_t shelf = shelf_of_current_device();
  if (PinnedBlock* block = try_take(bytes, shelf, Reach::own_node)) return *block;
  poll();
  if (PinnedBlock* block = try_take(bytes, shelf, Reach::own_node)) return *block;
  const std::size_t least = round_up(size, kPage);
  const std::size_t wanted = segment_bytes_for(size);
  if (PinnedBlock* block = grow(bytes, shelf, wanted)) return *block;
  if (PinnedBlock* block = try_take(bytes, shelf, Reach::everywhere)) return *block;
  if (wanted > least) {
    if (PinnedBlock* block = grow(bytes, shelf, least)) return *block;
  }
  wait();
  if (PinnedBlock* block = try_take(bytes, shelf, Reach::everywhere)) return *block;
  give_back_segments();
  if (PinnedBlock* block = grow(bytes, shelf, least)) return *block;
  MemoryBreakdown breakdown;
  breakdown.requested = signed_bytes(size);
  {
    const std::lock_guard lock(mutex_);
    breakdown.allocated = stats_.active_bytes.current;
    breakdown.reserved = stats_.allocated_bytes.current;
  }
  throw OutOfMemoryError(fmt::format("Page-locked host memory is exhausted. Tried to allocate {}.",
                                     format_bytes(signed_bytes(bytes))),
                         breakdown, "cpu");
}

PinnedBlock* PinnedHeap::try_take(std::size_t bytes, std::size_t shelf, Reach reach) {
  const std::size_t size = block_bytes(bytes);
  const std::lock_guard lock(mutex_);
  settle();
  HeapBlock* found = shelves_[shelf].free.find(size);
  if (reach == Reach::everywhere) {
    for (auto other = shelves_.begin(); found == nullptr && other != shelves_.end(); ++other) {
      found = other->free.find(size);
    }
  }
  if (found == nullptr) return nullptr;
  PinnedBlock& rest = blank();
  PinnedBlock& block = pinned(*found);
  shelves_[block.segment->shelf].free.remove(block);
  return &hand_out(block, size, bytes, rest);
}

// Small segments first; the more is held, the larger are the next ones.
std::size_t PinnedHeap::segment_bytes_for(std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto held = static_cast<std::size_t>(stats_.allocated_bytes.current);
  const std::size_t step = std::clamp(std::bit_floor(held + 1), kLeastSegment, kMostGrowth);
  return size > step / 2 ? round_up(size, kLeastSegment) : step;
}

// A new segment, of which the first part is handed out; nullptr if the system has no memory.
PinnedBlock* PinnedHeap::grow(std::size_t bytes, std::size_t shelf, std::size_t segment_bytes) {
  auto segment = std::make_unique<PinnedSegment>();
  PinnedBlock* block = nullptr;
  PinnedBlock* rest = nullptr;
  {
    const std::lock_guard lock(mutex_);
    block = &blank();
    try {
      rest = &blank();
    } catch (...) {
      give_blank(*block);
      throw;
    }
  }
  const auto undo = [&] {
    const std::lock_guard lock(mutex_);
    give_blank(*block);
    give_blank(*rest);
  };
  const Stopwatch watch;
  try {
    segment->pages = allocate_host_pages(
        segment_bytes, host_placement(shelves_[shelf].node, shelves_.size() > 1, segment_bytes));
  } catch (...) {
    undo();
    throw;
  }
  if (segment->pages.data == nullptr) {
    undo();
    return nullptr;
  }
  const std::int64_t us = watch.us();
  segment->shelf = shelf;
  const std::lock_guard lock(mutex_);
  increase(stats_.allocations, 1);
  increase(stats_.allocated_bytes, segment->pages.bytes);
  ++stats_.num_host_alloc;
  add_time(stats_.host_alloc_time, us);
  block->data = segment->pages.data;
  block->bytes = segment->pages.bytes;
  block->segment = segment.release();
  poison_now(block->data, block->bytes);
  return &hand_out(*block, block_bytes(bytes), bytes, *rest);
}

PinnedBlock& PinnedHeap::hand_out(PinnedBlock& block, std::size_t size, std::size_t bytes,
                                  PinnedBlock& rest) {
  if (block.bytes - size >= kBlockGrain) {
    cut_block(block, size, rest);
    rest.segment = block.segment;
    insert(rest);
  } else {
    give_blank(rest);
  }
  block.use.store(BlockUse::live, std::memory_order_relaxed);
  block.requested.store(bytes, std::memory_order_relaxed);
  block.uses.clear();
  increase(stats_.active_requests, 1);
  increase(stats_.active_bytes, block.bytes);
  unpoison_now(block.data, bytes);
  return block;
}

void PinnedHeap::deallocate(PinnedBlock& block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (block.use.load(std::memory_order_relaxed) != BlockUse::live) return;
    if (block.uses.empty()) return release(block);
    block.use.store(BlockUse::pending, std::memory_order_relaxed);
  }
  // A foreign stream's sequence is an event, so the driver is asked without the lock.
  for (StreamUse& use : block.uses) {
    if (use.sequence == 0) use.sequence = use.clock->record_sequence();
  }
  const std::lock_guard lock(mutex_);
  if (!hold(block) && !enqueue(block)) release(block);
}

bool PinnedHeap::hold(PinnedBlock& block) noexcept {
  std::erase_if(block.captures, [](const auto& capture) { return !capture->is_needed(); });
  if (block.captures.empty()) return false;
  block.next_waiting = std::exchange(held_, &block);
  return true;
}

void PinnedHeap::release_held() noexcept {
  PinnedBlock* list = std::exchange(held_, nullptr);
  while (list != nullptr) {
    PinnedBlock& block = *std::exchange(list, list->next_waiting);
    if (!hold(block) && !enqueue(block)) release(block);
  }
}

void PinnedHeap::record_stream(PinnedBlock& block, const Stream& stream) {
  note(block, stream, StreamClock::of(stream), 0);
}

void PinnedHeap::record_use(PinnedBlock& block, const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  note(block, stream, clock, clock.record_sequence());
}

// `sequence`: when the use is over; 0 if that is decided at the free.
void PinnedHeap::note(PinnedBlock& block, const Stream& stream, StreamClock& clock,
                      std::uint64_t sequence) {
  const std::shared_ptr<const Capture> capture =
      is_captured(stream.native()) ? capture_of(stream) : nullptr;
  const auto is_this = [&](const auto& entry) { return entry.clock == &clock; };
  const std::lock_guard lock(mutex_);
  if (block.use.load(std::memory_order_relaxed) != BlockUse::live) return;
  // The queue is made here so that deallocate() allocates nothing.
  if (std::none_of(queues_.begin(), queues_.end(), is_this)) queues_.push_back({.clock = &clock});
  if (capture != nullptr && std::ranges::find(block.captures, capture) == block.captures.end()) {
    block.captures.push_back(capture);
  }
  const auto known = std::find_if(block.uses.begin(), block.uses.end(), is_this);
  if (known == block.uses.end()) {
    block.uses.push_back({.clock = &clock, .sequence = sequence});
  } else if (known->sequence != 0) {
    known->sequence = sequence == 0 ? 0 : std::max(known->sequence, sequence);
  }
}

bool PinnedHeap::enqueue(PinnedBlock& block) noexcept {
  while (!block.uses.empty()) {
    const StreamUse use = block.uses.back();
    if (use.sequence > use.clock->completed()) {
      const auto queue = std::find_if(queues_.begin(), queues_.end(),
                                      [&](const Queue& entry) { return entry.clock == use.clock; });
      block.next_waiting = nullptr;
      (queue->head == nullptr ? queue->head : queue->tail->next_waiting) = &block;
      queue->tail = &block;
      return true;
    }
    block.uses.pop_back();
  }
  return false;
}

void PinnedHeap::settle() noexcept {
  release_held();
  // A block that moves on may enter a queue that was looked at; the next call sees it.
  for (Queue& queue : queues_) {
    const std::uint64_t completed = queue.head == nullptr ? 0 : queue.clock->completed();
    while (queue.head != nullptr && queue.head->uses.back().sequence <= completed) {
      PinnedBlock& block = *queue.head;
      queue.head = std::exchange(block.next_waiting, nullptr);
      block.uses.pop_back();
      if (!enqueue(block)) release(block);
    }
  }
}

void PinnedHeap::release(PinnedBlock& block) noexcept {
  decrease(stats_.active_requests, 1);
  decrease(stats_.active_bytes, block.bytes);
  poison_now(block.data, block.bytes);
  TlsfIndex& index = shelves_[block.segment->shelf].free;
  PinnedBlock* whole = &block;
  const auto absorb = [&](PinnedBlock& left) {
    PinnedBlock& right = pinned(*left.next);
    absorb_next(left);
    give_blank(right);
    whole = &left;
  };
  if (is_free(block.next)) {
    index.remove(*block.next);
    absorb(block);
  }
  if (is_free(block.previous)) {
    index.remove(*block.previous);
    absorb(pinned(*block.previous));
  }
  insert(*whole);
}

void PinnedHeap::insert(PinnedBlock& block) noexcept {
  block.use.store(BlockUse::free, std::memory_order_relaxed);
  shelves_[block.segment->shelf].free.insert(block);
}

void PinnedHeap::poll() {
  std::vector<StreamUse> heads;
  {
    const std::lock_guard lock(mutex_);
    for (const Queue& queue : queues_) {
      if (queue.head != nullptr) heads.push_back(queue.head->uses.back());
    }
  }
  for (const StreamUse& use : heads) use.clock->poll(use.sequence);
}

// Waits for all uses of the blocks that wait now, but not for those that others free meanwhile:
// with them busy, that would never end.
void PinnedHeap::wait() {
  std::vector<StreamUse> last;
  {
    const std::lock_guard lock(mutex_);
    for (const Queue& queue : queues_) {
      for (const PinnedBlock* block = queue.head; block != nullptr; block = block->next_waiting) {
        for (const StreamUse& use : block->uses) {
          const auto known = std::ranges::find(last, use.clock, &StreamUse::clock);
          if (known == last.end()) {
            last.push_back(use);
          } else {
            known->sequence = std::max(known->sequence, use.sequence);
          }
        }
      }
    }
  }
  for (const StreamUse& use : last) {
    if (use.clock->can_wait_for(use.sequence)) use.clock->wait_for(use.sequence);
  }
  const std::lock_guard lock(mutex_);
  settle();
}

void PinnedHeap::empty_cache() {
  wait();
  give_back_segments();
}

void PinnedHeap::give_back_segments() {
  PinnedBlock* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (Shelf& shelf : shelves_) {
      shelf.free.for_each(0, [&](HeapBlock& free) {
        if (free.previous != nullptr || free.next != nullptr) return true;
        shelf.free.remove(free);
        free.use.store(BlockUse::moving, std::memory_order_relaxed);
        pinned(free).next_waiting = std::exchange(list, &pinned(free));
        return true;
      });
    }
  }
  while (list != nullptr) {
    PinnedBlock& block = *list;
    unpoison_now(block.data, block.bytes);
    const Stopwatch watch;
    try {
      release_host_pages(block.segment->pages);
    } catch (...) {
      poison_now(block.data, block.bytes);
      const std::lock_guard lock(mutex_);
      while (list != nullptr) insert(*std::exchange(list, list->next_waiting));
      throw;
    }
    const std::int64_t us = watch.us();
    list = block.next_waiting;
    const std::unique_ptr<PinnedSegment> segment(block.segment);
    const std::lock_guard lock(mutex_);
    decrease(stats_.allocations, 1);
    decrease(stats_.allocated_bytes, segment->pages.bytes);
    ++stats_.num_host_free;
    add_time(stats_.host_free_time, us);
    give_blank(block);
  }
}

PinnedBlock& PinnedHeap::blank() {
  if (spare_ == nullptr) return blocks_.emplace_back();
  PinnedBlock& block = *spare_;
  spare_ = std::exchange(block.next_waiting, nullptr);
  return block;
}

void PinnedHeap::give_blank(PinnedBlock& block) noexcept {
  block.use.store(BlockUse::blank, std::memory_order_relaxed);
  block.data = nullptr;
  block.bytes = 0;
  block.previous = nullptr;
  block.next = nullptr;
  block.segment = nullptr;
  block.next_waiting = std::exchange(spare_, &block);
}

HostStats PinnedHeap::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void PinnedHeap::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  for (Stat HostStats::*stat : {&HostStats::allocations, &HostStats::allocated_bytes,
                                &HostStats::active_requests, &HostStats::active_bytes}) {
    reset_peak(stats_.*stat);
  }
}

}  // namespace gantry::memory
