// The recorded history, as the allocators and snapshots use it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "core/observers.hpp"
#include "core/stacks/call_site.hpp"

namespace gantry::memory {

/// True while history is recorded. Costs one load: hot paths call it before anything else here.
[[nodiscard]] inline bool recording_history() noexcept {
  return has_observer(Observer::allocation_history);
}

/// Returns the number of the calling thread's stack, at the depth that the options select; 0 if
/// they select none. For free_requested it is 0 unless the options select stacks of frees: the
/// caller then records the call site of the block's allocation.
[[nodiscard]] std::uint32_t capture_call_site(TraceAction action = TraceAction::alloc) noexcept;

/// Records an event of `device` while history is recorded. For oom, `address` is the driver's free
/// bytes. `requested` is the size that a block's caller asked for.
///
/// Events are ordered by the time of the call, so the call precedes the moment at which other
/// threads can see the change. The caller holds the lock that snapshots take, or is between enter
/// and leave of its thread's cache; see Note [Where a trace ends]. One call in a thousand takes a
/// lock. Without host memory the event is lost.
void record_trace(int device, TraceAction action, std::uintptr_t address, std::size_t bytes,
                  std::uint64_t stream, std::uint32_t call_site,
                  std::size_t requested = 0) noexcept;
/// Records that snapshot() copied the segments of `device` at `time_ns`.
void record_snapshot(int device, std::int64_t time_ns) noexcept;

/// Returns a time of the events' clock. Events recorded before the call have an earlier time, and
/// events recorded after it a later one, on every thread.
[[nodiscard]] std::int64_t history_moment_ns();

/// One event. stacks::frames_of() gives the functions of its call site.
struct RecordedEvent {
  std::int64_t time_ns = 0;  ///< of the steady clock
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;
  std::uint64_t stream = 0;
  std::uint32_t call_site = 0;
  std::uint32_t metadata = 0;  ///< number of its text; see snapshots/recorded_history.hpp
  std::int32_t device = 0;
  TraceAction action = TraceAction::alloc;
};
/// A copy of the recorded events, oldest first.
[[nodiscard]] std::vector<RecordedEvent> recorded_events();
/// Records as the options say; see record_history(). One thread at a time.
void set_recording(const HistoryOptions& options);
/// The `metadata` of later events of the calling thread; 0 at first.
void set_event_metadata(std::uint32_t number) noexcept;
[[nodiscard]] std::uint32_t event_metadata() noexcept;

/// The segments that the allocator of one device held at one moment.
struct HeldSegments {
  int device = 0;
  std::int64_t time_ns = 0;  ///< history_moment_ns() of the copy: `segments` has all earlier events
  std::vector<SegmentInfo> segments;
  /// The call sites of each segment and then its blocks; empty after look_up_frames().
  std::vector<std::uint32_t> call_sites;

  /// Replaces the call sites by frames. It reads debug information, so no lock is held.
  void look_up_frames();
};

}  // namespace gantry::memory
