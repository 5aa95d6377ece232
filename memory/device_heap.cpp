#include "memory/device_heap.hpp"

#include <gantry/core/log.hpp>

#include "memory/counters.hpp"
#include "memory/poison.hpp"
#include "memory/size_policy.hpp"

namespace gantry::memory {

DeviceHeap::DeviceHeap(int device, const AllocConfig& config)
    : device_(device), config_(config), fraction_(config.fraction) {
  if (config.max_split_bytes != AllocConfig{}.max_split_bytes) {
    stats_.max_split_size = static_cast<std::int64_t>(config.max_split_bytes);
  }
}

BlockNode& DeviceHeap::allocate(std::size_t bytes, NativeStream stream) {
  const std::size_t size = block_bytes(bytes);
  Lock lock(mutex_);
  ++clock_;
  nodes_.reserve();
  BlockNode* found = take_free(size, stream);
  if (found == nullptr) found = &find_memory(lock, size, stream);
  BlockNode& node = *found;
  cut(node, size);
  node.live = true;
  node.requested = bytes;
  count_allocation(node);
  lock.unlock();
  // Only what was asked for: the rounding stays forbidden.
  unpoison(node.data, bytes, stream);
  return node;
}

void DeviceHeap::deallocate(BlockNode& node) noexcept {
  const Lock lock(mutex_);
  if (!node.live) {
    logging::error("a device block was freed twice; the second free is ignored");
    return;
  }
  const bool small = node.segment->small;
  node.live = false;
  decrease(stats_.allocation, small, 1);
  decrease(stats_.allocated_bytes, small, node.bytes);
  if (node.bytes >= config_.max_split_bytes) decrease(stats_.oversize_allocations, 1);
  if (!pending_.defer(node)) release(node);
}

void DeviceHeap::record_stream(BlockNode& node, NativeStream stream) {
  const Lock lock(mutex_);
  if (node.live && stream != node.segment->stream) node.add(stream);
}

void DeviceHeap::empty_cache() {
  Lock lock(mutex_);
  wait_for_pending(lock);
  release_all();
}

void DeviceHeap::set_fraction(double fraction) {
  const Lock lock(mutex_);
  fraction_ = fraction;
}

Stats DeviceHeap::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

void DeviceHeap::reset_peak_stats() {
  const Lock lock(mutex_);
  for (PoolStat* stat :
       {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
        &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
        &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
    reset_peak(*stat);
  }
  reset_peak(stats_.oversize_allocations);
  reset_peak(stats_.oversize_segments);
}

DeviceHeap::Export DeviceHeap::export_block(const BlockNode& node) {
  const Lock lock(mutex_);
  if (!node.live) {
    throw InvalidArgument("export_ipc: a live block was expected, but got one that was freed");
  }
  Segment& segment = *node.segment;
  if (!segment.exported) segment.exported = driver().export_memory(segment.base);
  return {*segment.exported, static_cast<std::size_t>(static_cast<std::byte*>(node.data) -
                                                      static_cast<std::byte*>(segment.base))};
}

void* DeviceHeap::find_exported(const NativeMemoryHandle& name) const {
  const Lock lock(mutex_);
  for (const Segment& segment : segments_) {
    if (segment.exported && segment.exported->bytes == name.bytes) return segment.base;
  }
  return nullptr;
}

// A free block of `bytes` or more; nullptr if there is none.
BlockNode* DeviceHeap::take_free(std::size_t bytes, NativeStream stream) noexcept {
  const bool small = is_small(bytes);
  BlockNode* node = pool(small).take_best_fit(stream, bytes, config_.max_split_bytes);
  if (node != nullptr) count_split(*node, false);
  return node;
}

void DeviceHeap::cut(BlockNode& node, std::size_t bytes) noexcept {
  const bool small = node.segment->small;
  if (!should_split(node.bytes, bytes, small, config_.max_split_bytes)) return;
  BlockNode& rest = nodes_.take();
  split_block(node, bytes, rest);
  rest.freed_at = node.freed_at;
  count_split(rest, true);
  pool(small).insert(rest);
}

void DeviceHeap::count_allocation(const BlockNode& node) noexcept {
  const bool small = node.segment->small;
  increase(stats_.allocation, small, 1);
  increase(stats_.allocated_bytes, small, node.bytes);
  increase(stats_.active, small, 1);
  increase(stats_.active_bytes, small, node.bytes);
  increase(stats_.requested_bytes, small, node.requested);
  if (node.bytes >= config_.max_split_bytes) increase(stats_.oversize_allocations, 1);
}

// Puts a block that no stream uses any more into its pool.
void DeviceHeap::release(BlockNode& node) noexcept {
  const bool small = node.segment->small;
  decrease(stats_.active, small, 1);
  decrease(stats_.active_bytes, small, node.bytes);
  decrease(stats_.requested_bytes, small, node.requested);
  node.requested = 0;
  poison(node.data, node.bytes, node.segment->stream);
  BlockNode& whole = join_neighbours(node);
  whole.freed_at = clock_;
  count_split(whole, true);
  pool(small).insert(whole);
}

BlockNode& DeviceHeap::join_neighbours(BlockNode& node) noexcept {
  BlockNode* whole = &node;
  BlockPool& own = pool(node.segment->small);
  if (BlockNode* next = node.next; next != nullptr && next->free) {
    count_split(*next, false);
    own.remove(*next);
    join_with_next(node);
    nodes_.give_back(*next);
  }
  if (BlockNode* previous = node.previous; previous != nullptr && previous->free) {
    count_split(*previous, false);
    own.remove(*previous);
    join_with_next(*previous);
    nodes_.give_back(node);
    whole = previous;
  }
  return *whole;
}

void DeviceHeap::count_split(const BlockNode& node, bool appears) noexcept {
  if (!node.is_split()) return;
  const bool small = node.segment->small;
  if (appears) {
    increase(stats_.inactive_split, small, 1);
    increase(stats_.inactive_split_bytes, small, node.bytes);
  } else {
    decrease(stats_.inactive_split, small, 1);
    decrease(stats_.inactive_split_bytes, small, node.bytes);
  }
}

}  // namespace gantry::memory
