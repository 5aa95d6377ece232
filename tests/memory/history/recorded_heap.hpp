// A heap without memory that tells the history what it does, as the allocators do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "memory/history/history.hpp"

namespace gantry::testing {

/// First fit in one range of addresses that grows by segments. A free with `pending` waits for
/// complete(). Thread safety: all members.
class RecordedHeap {
 public:
  explicit RecordedHeap(int device, std::uintptr_t base = 0x7f0000000000,
                        std::size_t segment_bytes = std::size_t{32} << 20)
      : device_(device), end_(base), segment_bytes_(segment_bytes) {}

  std::uintptr_t allocate(std::size_t requested, std::uint64_t stream = 0) {
    const std::size_t bytes = (requested + 511) / 512 * 512;
    const std::lock_guard lock(mutex_);
    const std::uint32_t site = memory::capture_call_site();
    auto free = fit(bytes);
    if (free == blocks_.end()) {
      add_segment(std::max(bytes, segment_bytes_), stream, site);
      free = fit(bytes);
    }
    const auto [address, old] = *free;
    blocks_[address] = {bytes, requested, memory::BlockState::active_allocated, stream, site};
    if (old.bytes > bytes) {
      blocks_[address + bytes] = {old.bytes - bytes, 0, memory::BlockState::inactive, 0, 0};
    }
    record(memory::TraceAction::alloc, address, bytes, stream, site, requested);
    return address;
  }

  void free(std::uintptr_t address, bool pending = false) {
    const std::lock_guard lock(mutex_);
    Piece& block = blocks_.at(address);
    const std::uint32_t site = memory::capture_call_site(memory::TraceAction::free_requested);
    record(memory::TraceAction::free_requested, address, block.bytes, block.stream,
           site != 0 ? site : block.site, block.requested);
    block.state = memory::BlockState::active_pending_free;
    if (!pending) complete_locked(address);
  }

  void complete(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    complete_locked(address);
  }

  void fail(std::size_t bytes, std::size_t device_free) {
    record(memory::TraceAction::oom, device_free, bytes, 0, memory::capture_call_site());
  }

  [[nodiscard]] std::vector<memory::SegmentInfo> segments() {
    const std::lock_guard lock(mutex_);
    std::vector<memory::SegmentInfo> result;
    for (const auto& [begin, segment] : segments_) {
      memory::SegmentInfo info{.device = device_,
                               .address = begin,
                               .total_bytes = segment.bytes,
                               .stream = segment.stream,
                               .frames = stacks::frames_of(segment.site),
                               .blocks = {}};
      for (auto at = blocks_.find(begin); at != blocks_.end() && at->first < begin + segment.bytes;
           ++at) {
        const auto& [address, piece] = *at;
        const bool live = piece.state == memory::BlockState::active_allocated;
        const bool active = piece.state != memory::BlockState::inactive;
        info.allocated_bytes += live ? piece.bytes : 0;
        info.active_bytes += active ? piece.bytes : 0;
        info.requested_bytes += active ? piece.requested : 0;
        info.blocks.push_back({address, piece.bytes, active ? piece.requested : 0, piece.state,
                               piece.stream, stacks::frames_of(active ? piece.site : 0)});
      }
      result.push_back(std::move(info));
    }
    return result;
  }

 private:
  struct Piece {
    std::size_t bytes = 0;
    std::size_t requested = 0;
    memory::BlockState state = memory::BlockState::inactive;
    std::uint64_t stream = 0;
    std::uint32_t site = 0;
  };

  void record(memory::TraceAction action, std::uintptr_t address, std::size_t bytes,
              std::uint64_t stream, std::uint32_t site, std::size_t requested = 0) {
    if (memory::recording_history()) {
      memory::record_trace(device_, action, address, bytes, stream, site, requested);
    }
  }

  std::map<std::uintptr_t, Piece>::iterator fit(std::size_t bytes) {
    return std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& entry) {
      return entry.second.state == memory::BlockState::inactive && entry.second.bytes >= bytes;
    });
  }

  void add_segment(std::size_t bytes, std::uint64_t stream, std::uint32_t site) {
    record(memory::TraceAction::segment_alloc, end_, bytes, stream, site);
    segments_[end_] = {bytes, 0, memory::BlockState::inactive, stream, site};
    blocks_[end_] = {bytes, 0, memory::BlockState::inactive, 0, 0};
    end_ += bytes + (std::size_t{2} << 20);  // segments are no neighbours
  }

  void complete_locked(std::uintptr_t address) {
    auto at = blocks_.find(address);
    record(memory::TraceAction::free_completed, address, at->second.bytes, at->second.stream,
           at->second.site, at->second.requested);
    at->second = {at->second.bytes, 0, memory::BlockState::inactive, 0, 0};
    if (is_free_at(std::next(at), at->first + at->second.bytes)) {
      at->second.bytes += std::next(at)->second.bytes;
      blocks_.erase(std::next(at));
    }
    if (at == blocks_.begin()) return;
    const auto before = std::prev(at);
    if (is_free_at(before, before->first) && before->first + before->second.bytes == at->first) {
      before->second.bytes += at->second.bytes;
      blocks_.erase(at);
    }
  }

  bool is_free_at(std::map<std::uintptr_t, Piece>::iterator at, std::uintptr_t address) {
    return at != blocks_.end() && at->first == address &&
           at->second.state == memory::BlockState::inactive;
  }

  const int device_;
  std::uintptr_t end_;
  const std::size_t segment_bytes_;
  std::mutex mutex_;
  std::map<std::uintptr_t, Piece> blocks_;  // all pieces of all segments
  std::map<std::uintptr_t, Piece> segments_;
};

}  // namespace gantry::testing
