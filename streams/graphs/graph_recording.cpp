#include "streams/graphs/graph_recording.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

#include <gantry/extend/driver.hpp>

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

std::shared_ptr<GraphRecording> GraphRecording::of(const Stream& stream) {
  Recordings& all = Recordings::instance();
  if (all.count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::uint64_t capture = driver().capture_id(stream.native());
  if (capture == 0) return nullptr;
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_capture.find(capture);
  return found == all.by_capture.end() ? nullptr : found->second;
}

void GraphRecording::announce(std::uint64_t capture, std::shared_ptr<GraphRecording> recording) {
  Recordings& all = Recordings::instance();
  const std::lock_guard lock(all.mutex);
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
  return found->second;
}

}  // namespace gantry
