#include "memory/history/history.hpp"

#include "core/thread_log.hpp"
#include "core/trace_log.hpp"

namespace gantry {

using EventLog = ThreadLog<memory::RecordedEvent>;

template <>
constinit thread_local EventLog::Chunk* EventLog::own_chunk = nullptr;
template <>
constinit thread_local bool EventLog::thread_has_ended = false;

template <>
EventLog& EventLog::instance() {
  static auto& log = *new EventLog();
  return log;
}

}  // namespace gantry

namespace gantry::memory {
namespace {

using Stacks = HistoryOptions::Stacks;
using Contexts = HistoryOptions::Contexts;

constinit std::atomic<Stacks> kept_stacks{Stacks::none};
constinit std::atomic<Contexts> kept_contexts{Contexts::never};
constinit std::atomic<bool> keeps_trace{false};

thread_local constinit std::uint32_t own_metadata = 0;

void append(RecordedEvent event) {
  if (kept_contexts.load(std::memory_order_relaxed) < Contexts::alloc) event.call_site = 0;
  event.metadata = own_metadata;
  EventLog::instance().append(event);
}

bool keeps_events() { return recording_history() && keeps_trace.load(std::memory_order_relaxed); }

bool is_free(TraceAction action) {
  return action == TraceAction::free_requested || action == TraceAction::free_completed;
}

}  // namespace

void set_recording(const HistoryOptions& options) {
  if (!options.enabled) {
    set_observer(Observer::allocation_history, false);
  } else if (options.stacks != Stacks::none && options.contexts != Contexts::never) {
    stacks::prepare_call_sites();
  }
  // A thread that was recording while history was switched off may have left an event.
  if (options.clear || !recording_history()) EventLog::instance().clear(trace::now_ns());
  if (!options.enabled) return;
  EventLog::instance().set_capacity(options.max_entries);
  kept_stacks.store(options.stacks, std::memory_order_relaxed);
  kept_contexts.store(options.contexts, std::memory_order_relaxed);
  keeps_trace.store(options.max_entries > 0, std::memory_order_relaxed);
  set_observer(Observer::allocation_history, true);
}

void set_event_metadata(std::uint32_t number) noexcept { own_metadata = number; }

std::uint32_t event_metadata() noexcept { return own_metadata; }

std::uint32_t capture_call_site(TraceAction action) noexcept {
  if (!recording_history()) return 0;
  const Contexts contexts = kept_contexts.load(std::memory_order_relaxed);
  if (contexts == Contexts::never || (is_free(action) && contexts != Contexts::all)) return 0;
  const Stacks kept = kept_stacks.load(std::memory_order_relaxed);
  if (kept == Stacks::none) return 0;
  using Depth = stacks::StackDepth;
  return stacks::intern_call_stack(kept == Stacks::full ? Depth::full : Depth::call_site);
}

void record_trace(int device, TraceAction action, std::uintptr_t address, std::size_t bytes,
                  std::uint64_t stream, std::uint32_t call_site, std::size_t requested) noexcept {
  if (!keeps_events()) return;
  append({.time_ns = trace::now_ns(),
          .address = address,
          .bytes = bytes,
          .requested = requested,
          .stream = stream,
          .call_site = call_site,
          .device = device,
          .action = action});
}

std::int64_t history_moment_ns() {
  const auto later_than = [](std::int64_t time) {
    std::int64_t now = trace::now_ns();
    while (now <= time) now = trace::now_ns();
    return now;
  };
  const std::int64_t moment = later_than(trace::now_ns());
  static_cast<void>(later_than(moment));
  return moment;
}

void record_snapshot(int device, std::int64_t time_ns) noexcept {
  if (!keeps_events()) return;
  append({.time_ns = time_ns, .device = device, .action = TraceAction::snapshot});
}

std::vector<RecordedEvent> recorded_events() { return EventLog::instance().events(); }

void HeldSegments::look_up_frames() {
  if (call_sites.empty()) return;
  auto call_site = call_sites.begin();
  for (SegmentInfo& segment : segments) {
    segment.frames = stacks::frames_of(*call_site++);
    for (BlockInfo& block : segment.blocks) block.frames = stacks::frames_of(*call_site++);
  }
  call_sites.clear();
}

}  // namespace gantry::memory
