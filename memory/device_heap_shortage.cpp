#include <algorithm>

#include <gantry/device/properties.hpp>

#include "memory/counters.hpp"
#include "memory/device_heap.hpp"
#include "memory/oom_report.hpp"
#include "memory/poison.hpp"
#include "memory/size_policy.hpp"

namespace gantry::memory {

// Note [What a shortage costs]
// When no free block fits, the steps go from cheap to dear: blocks whose other streams are done
// (asks the driver, waits for nothing), a new segment, then waiting for the other streams and
// looking again, and last giving unused segments back, which makes the driver wait for the device.
// The lock is not held while waiting for streams: their work may depend on threads that allocate.
BlockNode& DeviceHeap::find_memory(Lock& lock, std::size_t bytes, NativeStream stream) {
  const auto grow = [&] { return new_segment(bytes, stream); };
  const auto search = [&] { return take_free(bytes, stream); };
  if (!pending_.empty()) {
    poll_pending();
    if (BlockNode* node = search()) return *node;
  }
  collect_garbage();
  if (BlockNode* node = grow()) return *node;
  ++stats_.num_alloc_retries;
  if (!pending_.empty()) {
    wait_for_pending(lock);
    if (BlockNode* node = search()) return *node;
  }
  if (config_.max_split_bytes <= bytes) {
    release_oversize();
    if (BlockNode* node = grow()) return *node;
  }
  release_all();
  if (BlockNode* node = grow()) return *node;
  report_out_of_memory(lock, bytes);
}

// A segment for a block of `bytes` as one free block in no pool; nullptr if the limit is reached or
// the device is full.
BlockNode* DeviceHeap::new_segment(std::size_t bytes, NativeStream stream) {
  const std::size_t size = segment_bytes(bytes);
  const auto held = static_cast<std::size_t>(stats_.reserved_bytes.all.current);
  if (size > limit() || held > limit() - size) return nullptr;
  nodes_.reserve();
  const bool small = is_small(bytes);
  segments_.push_front(
      {.base = nullptr, .bytes = size, .stream = stream, .small = small, .exported = {}});
  void* base = nullptr;
  try {
    base = driver().allocate(device_, size);
  } catch (...) {
    segments_.pop_front();
    throw;
  }
  if (base == nullptr) {
    segments_.pop_front();
    return nullptr;
  }
  segments_.front().base = base;
  if (poisons_device_memory()) poison_now(base, size);
  BlockNode& node = nodes_.take();
  node.data = base;
  node.bytes = size;
  node.freed_at = clock_;
  node.segment = segments_.begin();
  ++stats_.num_device_alloc;
  increase(stats_.segment, small, 1);
  increase(stats_.reserved_bytes, small, size);
  if (size >= config_.max_split_bytes) increase(stats_.oversize_segments, 1);
  return &node;
}

void DeviceHeap::poll_pending() {
  pending_.poll([this](StreamUses& block) { release(static_cast<BlockNode&>(block)); });
}

void DeviceHeap::wait_for_pending(Lock& lock) {
  const PendingFrees::Waits waits = pending_.waits();
  if (waits.empty()) return;
  ++stats_.num_sync_all_streams;
  lock.unlock();
  // Events are pooled, never destroyed: one that is used again meanwhile only makes the wait
  // longer.
  waits.synchronize();
  lock.lock();
  poll_pending();
  nodes_.reserve();
}

template <class Condition>
void DeviceHeap::release_segments(BlockPool& pool, Condition&& condition) {
  for (auto it = pool.blocks().begin(); it != pool.blocks().end();) {
    BlockNode& node = **it++;
    if (!node.is_split() && condition(node)) release_segment(node);
  }
}

void DeviceHeap::release_segment(BlockNode& node) {
  Segment& segment = *node.segment;
  const bool small = segment.small;
  driver().deallocate(device_, segment.base);
  if (poisons_device_memory()) unpoison_now(segment.base, segment.bytes);
  ++stats_.num_device_free;
  decrease(stats_.segment, small, 1);
  decrease(stats_.reserved_bytes, small, segment.bytes);
  if (segment.bytes >= config_.max_split_bytes) decrease(stats_.oversize_segments, 1);
  pool(small).remove(node);
  segments_.erase(node.segment);
  nodes_.give_back(node);
}

void DeviceHeap::release_oversize() {
  release_segments(large_,
                   [this](const BlockNode& node) { return node.bytes >= config_.max_split_bytes; });
}

// Above the threshold, gives back large segments that have been free for longer than the average.
void DeviceHeap::collect_garbage() {
  if (config_.gc_threshold <= 0) return;
  const auto total =
      static_cast<double>(std::min(limit(), device_properties(Device::cuda(device_)).total_memory));
  const auto target = static_cast<std::int64_t>(config_.gc_threshold * total);
  const auto over_target = [&] { return stats_.reserved_bytes.all.current > target; };
  while (over_target()) {
    std::uint64_t age_sum = 0;
    std::uint64_t count = 0;
    for (const BlockNode* node : large_.blocks()) {
      if (node->is_split()) continue;
      age_sum += clock_ - node->freed_at;
      ++count;
    }
    if (count == 0) return;
    release_segments(large_, [&](const BlockNode& node) {
      return over_target() && (clock_ - node.freed_at) * count >= age_sum;
    });
  }
}

void DeviceHeap::release_all() {
  for (BlockPool* own : {&large_, &small_}) {
    release_segments(*own, [](const BlockNode&) { return true; });
  }
}

std::size_t DeviceHeap::limit() const {
  if (fraction_ >= 1) return AllocConfig{}.max_split_bytes;
  const std::size_t total = device_properties(Device::cuda(device_)).total_memory;
  return static_cast<std::size_t>(fraction_ * static_cast<double>(total));
}

void DeviceHeap::report_out_of_memory(Lock& lock, std::size_t bytes) {
  ++stats_.num_ooms;
  MemoryBreakdown breakdown;
  breakdown.requested = signed_bytes(bytes);
  breakdown.allocated = stats_.allocated_bytes.all.current;
  breakdown.reserved = stats_.reserved_bytes.all.current;
  const std::size_t limit_bytes = limit();
  const bool may_split_less = stats_.max_split_size < 0;
  lock.unlock();
  const NativeMemoryInfo info = driver().memory_info(device_);
  breakdown.total = static_cast<std::int64_t>(info.total);
  breakdown.free = static_cast<std::int64_t>(info.free);
  breakdown.limit = static_cast<std::int64_t>(std::min(limit_bytes, info.total));
  throw_out_of_memory(device_, breakdown, may_split_less);
}

}  // namespace gantry::memory
