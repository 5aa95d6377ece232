// Walks a trace from its end to its begin, as viewers do, and sees whether everything fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include <gantry/memory/snapshot.hpp>

namespace gantry::testing {

/// What a device's memory was before the trace began: the segments with all events undone.
class BackwardReplay {
 public:
  BackwardReplay(const memory::Snapshot& snapshot, int device) {
    for (const memory::SegmentInfo& segment : snapshot.segments) {
      if (segment.device == device) add(segment);
    }
    const auto& trace = snapshot.device_traces.at(static_cast<std::size_t>(device));
    for (std::size_t i = trace.size(); i > 0 && problem_.empty(); --i) undo(trace[i - 1], i - 1);
  }

  /// What does not fit first; empty if everything does.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Blocks that were live or pending before the trace began.
  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }
  /// Bytes that were held before the trace began.
  [[nodiscard]] std::size_t held_bytes() const {
    std::size_t sum = 0;
    for (const auto& [begin, bytes] : memory_) sum += bytes;
    return sum;
  }

 private:
  struct Active {
    std::size_t bytes = 0;
    bool pending = false;
  };

  void fail(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
  }

  void add(const memory::SegmentInfo& segment) {
    if (!insert_memory(segment.address, segment.total_bytes)) fail("segments overlap");
    std::uintptr_t end = segment.address;
    for (const memory::BlockInfo& block : segment.blocks) {
      if (block.address != end) fail("a segment has a gap between its blocks");
      end += block.bytes;
      if (block.state == memory::BlockState::inactive) continue;
      blocks_[block.address] = {block.bytes,
                                block.state == memory::BlockState::active_pending_free};
    }
    if (end != segment.address + segment.total_bytes) fail("blocks do not fill their segment");
  }

  void undo(const memory::TraceEntry& event, std::size_t index) {
    using memory::TraceAction;
    const auto wrong = [&](const char* what) {
      fail("event " + std::to_string(index) + " (address " + std::to_string(event.address) + ", " +
           std::to_string(event.bytes) + " bytes) " + what);
    };
    const auto block = blocks_.find(event.address);
    const bool known = block != blocks_.end() && block->second.bytes == event.bytes;
    switch (event.action) {
      case TraceAction::alloc:
        if (!known) return wrong("allocates a block that is not there afterwards");
        if (block->second.pending) wrong("allocates a block that is freed already");
        blocks_.erase(block);
        return;
      case TraceAction::free_requested:
        if (!known) return wrong("frees a block that is not there");
        if (!block->second.pending) wrong("frees a block that is live afterwards");
        block->second.pending = false;
        return;
      case TraceAction::free_completed:
        if (!is_covered(event.address, event.bytes)) wrong("frees a block outside of all segments");
        if (has_block_in(event.address, event.bytes)) wrong("frees a block where another one is");
        blocks_[event.address] = {event.bytes, true};
        return;
      case TraceAction::segment_alloc:
      case TraceAction::segment_map:
        if (has_block_in(event.address, event.bytes)) wrong("adds memory below a block");
        if (!remove_memory(event.address, event.bytes)) wrong("adds memory that is not held");
        return;
      case TraceAction::segment_free:
      case TraceAction::segment_unmap:
        if (!insert_memory(event.address, event.bytes)) wrong("removes memory that is still held");
        return;
      case TraceAction::snapshot:
      case TraceAction::oom:
        return;
    }
  }

  template <class Map>
  [[nodiscard]] static auto last_from(Map& map, std::uintptr_t address) {
    const auto after = map.upper_bound(address);
    return after == map.begin() ? map.end() : std::prev(after);
  }

  [[nodiscard]] bool is_covered(std::uintptr_t begin, std::size_t bytes) const {
    const auto held = last_from(memory_, begin);
    return held != memory_.end() && begin + bytes <= held->first + held->second;
  }

  [[nodiscard]] bool has_block_in(std::uintptr_t begin, std::size_t bytes) const {
    const auto block = last_from(blocks_, begin + bytes - 1);
    return block != blocks_.end() && block->first + block->second.bytes > begin;
  }

  // Neighbours are joined, as events may cut ranges elsewhere.
  [[nodiscard]] bool insert_memory(std::uintptr_t begin, std::size_t bytes) {
    auto before = last_from(memory_, begin + bytes - 1);
    if (before != memory_.end() && before->first + before->second > begin) return false;
    if (before == memory_.end() || before->first + before->second != begin) {
      before = memory_.emplace(begin, 0).first;
    }
    before->second += bytes;
    if (const auto next = memory_.find(begin + bytes); next != memory_.end()) {
      before->second += next->second;
      memory_.erase(next);
    }
    return true;
  }

  [[nodiscard]] bool remove_memory(std::uintptr_t begin, std::size_t bytes) {
    if (!is_covered(begin, bytes)) return false;
    const auto held = last_from(memory_, begin);
    const std::uintptr_t end = held->first + held->second;
    held->second = begin - held->first;
    if (held->second == 0) memory_.erase(held);
    if (begin + bytes < end) memory_[begin + bytes] = end - begin - bytes;
    return true;
  }

  std::map<std::uintptr_t, Active> blocks_;       // live and pending ones, by address
  std::map<std::uintptr_t, std::size_t> memory_;  // ranges that are held: begin, bytes
  std::string problem_;
};

}  // namespace gantry::testing
