#include "streams/capture.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include "streams/stream_clock.hpp"

namespace gantry {

/// The captures of this process whose graphs may be needed. Never destroyed.
class CaptureRegistry {
 public:
  static CaptureRegistry& instance() {
    static auto& registry = *new CaptureRegistry();
    return registry;
  }

  /// The capture that `stream` takes part in under this number.
  std::shared_ptr<Capture> find_or_add(const NativeStream& stream, std::uint64_t id) {
    // Held over the driver's call, so that a graph retains its capture once. `release` takes no
    // lock.
    const std::lock_guard lock(mutex_);
    std::erase_if(captures_, [](const auto& known) { return !known->is_needed(); });
    const auto found =
        std::ranges::find(captures_, id, [](const auto& known) { return known->id(); });
    if (found != captures_.end()) return *found;
    auto capture = std::make_shared<Capture>(id);
    captures_.reserve(captures_.size() + 1);
    auto retained = std::make_unique<std::shared_ptr<Capture>>(capture);
    driver().retain_by_capture(stream, release, retained.release());
    return captures_.emplace_back(std::move(capture));
  }

 private:
  static void release(void* data) {
    const std::unique_ptr<std::shared_ptr<Capture>> retained(
        static_cast<std::shared_ptr<Capture>*>(data));
    (*retained)->needed_.store(false, std::memory_order_release);
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Capture>> captures_;
};

std::shared_ptr<Capture> capture_of(const NativeStream& stream) {
  const std::uint64_t id = driver().capture_id(stream);
  return id == 0 ? nullptr : CaptureRegistry::instance().find_or_add(stream, id);
}

std::shared_ptr<Capture> capture_of(const Stream& stream) {
  if (stream.native_handle() == nullptr) return nullptr;
  return StreamClock::of(stream).is_captured() ? capture_of(stream.native()) : nullptr;
}

std::shared_ptr<Capture> known_capture_of(const StreamClock& clock) noexcept {
  if (!clock.may_be_captured() || !clock.may_submit()) return nullptr;
  try {
    return clock.is_captured() ? capture_of(clock.native()) : nullptr;
  } catch (...) {
    return nullptr;
  }
}

std::shared_ptr<Capture> begin_capture(const Stream& stream, CaptureMode mode) {
  driver().begin_capture(stream.native(), mode);
  return capture_of(stream);
}

}  // namespace gantry
