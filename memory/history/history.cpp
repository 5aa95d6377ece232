#include "memory/history/history.hpp"

#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/thread_log.hpp"
#include "core/trace_log.hpp"
#include "device/checked_device_index.hpp"

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

// Texts of set_history_metadata, which events name by number, and annotations.
struct Notes {
  std::mutex mutex;
  std::vector<std::string> metadata{""};
  std::unordered_map<std::string, std::uint32_t> numbers{{"", 0}};
  std::deque<Annotation> annotations;
  std::size_t max_annotations = 0;
};

Notes& notes() {
  static auto& instance = *new Notes();
  return instance;
}

thread_local constinit std::uint32_t own_metadata = 0;

// Microseconds since 1970 when the events' clock showed 0: fixed, so that an event has the same
// time in every snapshot.
std::int64_t epoch_us() {
  static const std::int64_t kEpoch = [] {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count() -
           trace::now_ns() / 1000;
  }();
  return kEpoch;
}

void forget_everything() {
  EventLog::instance().clear(trace::now_ns());
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  kept.annotations.clear();
}

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

void record_history(const HistoryOptions& options) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!options.enabled) {
    set_observer(Observer::allocation_history, false);
    forget_everything();
    return;
  }
  if (options.stacks != Stacks::none && options.contexts != Contexts::never)
    stacks::prepare_call_sites();
  static_cast<void>(epoch_us());
  // A thread that was recording while history was switched off may have left an event.
  if (options.clear || !recording_history()) forget_everything();
  EventLog::instance().set_capacity(options.max_entries);
  {
    Notes& kept = notes();
    const std::lock_guard notes_lock(kept.mutex);
    kept.max_annotations = options.max_entries;
  }
  kept_stacks.store(options.stacks, std::memory_order_relaxed);
  kept_contexts.store(options.contexts, std::memory_order_relaxed);
  keeps_trace.store(options.max_entries > 0, std::memory_order_relaxed);
  set_observer(Observer::allocation_history, true);
}

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

RecordedHistory recorded_history() {
  RecordedHistory history;
  history.events = EventLog::instance().events();
  history.epoch_us = epoch_us();
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  history.metadata = kept.metadata;
  history.annotations.assign(kept.annotations.begin(), kept.annotations.end());
  return history;
}

void HeldSegments::look_up_frames() {
  if (call_sites.empty()) return;
  auto call_site = call_sites.begin();
  for (SegmentInfo& segment : segments) {
    segment.frames = stacks::frames_of(*call_site++);
    for (BlockInfo& block : segment.blocks) block.frames = stacks::frames_of(*call_site++);
  }
  call_sites.clear();
}

void set_history_metadata(std::string text) {
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  const auto number = static_cast<std::uint32_t>(kept.metadata.size());
  const auto [known, is_new] = kept.numbers.try_emplace(text, number);
  if (is_new) kept.metadata.push_back(std::move(text));
  own_metadata = known->second;
}

std::string history_metadata() {
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  return kept.metadata[own_metadata];
}

void annotate_history(std::map<std::string, std::string> values, Device device) {
  if (!recording_history()) return;
  const int index = checked_device_index(device, "annotate_history");
  const std::int64_t time_us = epoch_us() + trace::now_ns() / 1000;
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  if (kept.max_annotations == 0) return;
  if (kept.annotations.size() == kept.max_annotations) kept.annotations.pop_front();
  kept.annotations.push_back({index, time_us, std::move(values)});
}

HistoryAnnotation::HistoryAnnotation(std::string name, Device device)
    : name_(std::move(name)), device_(device) {
  annotate_history({{"name", name_}, {"stage", "START"}}, device_);
}

HistoryAnnotation::~HistoryAnnotation() {
  try {
    annotate_history({{"name", name_}, {"stage", "END"}}, device_);
  } catch (const std::exception&) {
    // A note is not worth a crash.
  }
}

}  // namespace gantry::memory
