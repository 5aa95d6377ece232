#include "snapshots/recorded_history.hpp"

#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/trace_log.hpp"
#include "device/checked_device_index.hpp"

namespace gantry::memory {
namespace {

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

}  // namespace

void record_history(const HistoryOptions& options) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static_cast<void>(epoch_us());
  {
    Notes& kept = notes();
    const std::lock_guard notes_lock(kept.mutex);
    if (!options.enabled || options.clear || !recording_history()) kept.annotations.clear();
    kept.max_annotations = options.max_entries;
  }
  set_recording(options);
}

RecordedHistory recorded_history() {
  RecordedHistory history;
  history.events = recorded_events();
  history.epoch_us = epoch_us();
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  history.metadata = kept.metadata;
  history.annotations.assign(kept.annotations.begin(), kept.annotations.end());
  return history;
}

void set_history_metadata(std::string text) {
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  const auto number = static_cast<std::uint32_t>(kept.metadata.size());
  const auto [known, is_new] = kept.numbers.try_emplace(text, number);
  if (is_new) kept.metadata.push_back(std::move(text));
  set_event_metadata(known->second);
}

std::string history_metadata() {
  Notes& kept = notes();
  const std::lock_guard lock(kept.mutex);
  return kept.metadata[event_metadata()];
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
