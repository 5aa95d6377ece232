// The seam between the allocators and the recorded history.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "memory/call_site.hpp"

namespace gantry::memory {

/// Set by record_history; read through recording_history().
extern constinit std::atomic<bool> history_is_recorded;

/// Whether events are wanted: all that a hot path pays while they are not.
[[nodiscard]] inline bool recording_history() noexcept {
  return history_is_recorded.load(std::memory_order_relaxed);
}

/// The caller's stack as the options say; 0: none. For free_requested it is 0 unless frees have
/// stacks of their own: record the block's call site then.
[[nodiscard]] std::uint32_t capture_call_site(TraceAction action = TraceAction::alloc) noexcept;

/// Notes an event of `device` while history is recorded; for oom `address` is the driver's free
/// bytes. Call it before other threads can see the effect: events are ordered by the time of the
/// call. Lock-free but for one call in a thousand; an event that finds no memory is lost.
void record_trace(int device, TraceAction action, std::uintptr_t address, std::size_t bytes,
                  std::uint64_t stream, std::uint32_t call_site) noexcept;

/// What was recorded, oldest first, without the frames' names: see frames_of.
struct RecordedEvent {
  std::int64_t time_ns = 0;  ///< of the steady clock
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint32_t call_site = 0;
  std::uint32_t metadata = 0;  ///< index into RecordedHistory::metadata
  std::int32_t device = 0;
  TraceAction action = TraceAction::alloc;
};
struct RecordedHistory {
  std::vector<RecordedEvent> events;
  std::vector<std::string> metadata;  ///< the first one is empty
  std::vector<Annotation> annotations;
  std::int64_t epoch_us = 0;  ///< microseconds since 1970 at time_ns 0
};
[[nodiscard]] RecordedHistory recorded_history();

/// Tells snapshot() how to ask the allocators what they hold; the list may be in any order. An
/// empty function: nothing is held. Returns the one before.
std::function<std::vector<SegmentInfo>()> set_segment_source(
    std::function<std::vector<SegmentInfo>()> source);

}  // namespace gantry::memory
