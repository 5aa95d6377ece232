#include "streams/graphs/graph_recording.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "core/assert.hpp"
#include "device/drivers/capture_devices.hpp"

namespace gantry {
namespace {

// The recordings of captures under way, by the driver's number of the capture. Never destroyed.
struct Recordings {
  std::atomic<int> count{0};
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<GraphRecording>> by_capture;

  static Recordings& instance() {
    static auto& recordings = *new Recordings();
    return recordings;
  }
};

}  // namespace

bool GraphRecording::is_any_under_way() noexcept {
  return Recordings::instance().count.load(std::memory_order_relaxed) != 0;
}

std::shared_ptr<GraphRecording> GraphRecording::of(const Stream& stream) {
  // A default stream is never captured.
  if (!is_any_under_way() || stream.native().handle == nullptr) return nullptr;
  Recordings& all = Recordings::instance();
  const std::uint64_t capture = driver().capture_id(stream.native());
  if (capture == 0) return nullptr;
  CaptureDevices::note(capture, stream.native().device);
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_capture.find(capture);
  return found == all.by_capture.end() ? nullptr : found->second;
}

void GraphRecording::announce(std::uint64_t capture, std::shared_ptr<GraphRecording> recording) {
  Recordings& all = Recordings::instance();
  const std::lock_guard lock(all.mutex);
  GANTRY_ASSERT(recording != nullptr && capture != 0, "a recording begins outside of a capture");
  GANTRY_ASSERT(!all.by_capture.contains(capture), "two recordings are of one capture");
  all.by_capture[capture] = std::move(recording);
  all.count.store(static_cast<int>(all.by_capture.size()), std::memory_order_relaxed);
}

void GraphRecording::forget(const GraphRecording& recording) noexcept {
  Recordings& all = Recordings::instance();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_capture,
                [&](const auto& entry) { return entry.second.get() == &recording; });
  all.count.store(static_cast<int>(all.by_capture.size()), std::memory_order_relaxed);
}

std::shared_ptr<ReplayAction> GraphRecording::find_or_add(
    const void* key, const std::function<std::shared_ptr<ReplayAction>()>& make) {
  const std::lock_guard lock(mutex_);
  auto found = actions_.find(key);
  if (found == actions_.end()) found = actions_.emplace(key, make()).first;
  GANTRY_ASSERT(found->second != nullptr, "a recording has a null action");
  return found->second;
}

std::shared_ptr<ReplayAction> GraphRecording::find(const void* key) {
  const std::lock_guard lock(mutex_);
  const auto found = actions_.find(key);
  return found == actions_.end() ? nullptr : found->second;
}

bool GraphRecording::is_empty() const {
  return std::all_of(actions_.begin(), actions_.end(),
                     [](const auto& entry) { return entry.second->is_idle(); });
}

void GraphRecording::prepare(const Stream& stream) const {
  for (const auto& [key, action] : actions_) {
    if (!action->is_idle()) action->prepare(stream);
  }
}

}  // namespace gantry
