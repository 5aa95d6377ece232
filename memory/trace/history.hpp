// The seam between the allocators and the recorded history.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "memory/trace/call_site.hpp"

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
/// call. It belongs to the change that it tells of: under the lock that snapshots take, or between
/// enter and leave of a thread's cache. `requested`: what the caller asked for, of a block.
/// Lock-free but for one call in a thousand; an event that finds no memory is lost.
void record_trace(int device, TraceAction action, std::uintptr_t address, std::size_t bytes,
                  std::uint64_t stream, std::uint32_t call_site,
                  std::size_t requested = 0) noexcept;
/// Notes that snapshot() saw what `device` had at `time_ns`.
void record_snapshot(int device, std::int64_t time_ns) noexcept;

/// The present time of the events' clock; all events before it are older, all after it younger,
/// whichever thread records them.
[[nodiscard]] std::int64_t history_moment_ns();

/// What was recorded, oldest first, without the frames' names: see frames_of.
struct RecordedEvent {
  std::int64_t time_ns = 0;  ///< of the steady clock
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;
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

/// What the allocator of one device held at one moment.
struct HeldSegments {
  int device = 0;
  std::int64_t time_ns = 0;  ///< history_moment_ns(): the events until then led to the segments
  std::vector<SegmentInfo> segments;
  /// Of each segment and then its blocks: they become frames later, because that takes long.
  /// Empty: the frames are there.
  std::vector<std::uint32_t> call_sites;

  void look_up_frames();
};
/// Asks the allocators what they hold, at most one answer per device, in any order.
using SegmentSource = std::function<std::vector<HeldSegments>()>;

/// Tells snapshot() whom to ask. An empty function: nothing is held. Returns the one before.
SegmentSource set_segment_source(SegmentSource source);

}  // namespace gantry::memory
