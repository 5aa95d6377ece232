#include "streams/capture.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "core/assert.hpp"
#include "device/drivers/capture_devices.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {

/// The captures of this process whose graphs may be needed. Never destroyed.
class CaptureRegistry {
 public:
  static CaptureRegistry& instance() {
    static auto& registry = *new CaptureRegistry();
    return registry;
  }

  /// The capture that `stream` takes part in under this number, which shares the memory of `pool`
  /// if it is new.
  std::shared_ptr<Capture> find_or_add(const NativeStream& stream, std::uint64_t id,
                                       MemPoolId pool) {
    // Held over the driver's call, so that a graph retains its capture once. `release` takes no
    // lock.
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return !known.capture->is_needed(); });
    std::erase_if(shared_, [](const auto& shared) { return shared.second.expired(); });
    const auto found = std::ranges::find(known_, id, &Known::id);
    if (found != known_.end()) return found->capture;
    std::shared_ptr<Capture> capture;
    if (pool != MemPoolId::none) capture = shared_[pool].lock();
    if (capture == nullptr) capture = std::make_shared<Capture>();
    if (pool != MemPoolId::none) shared_[pool] = capture;
    known_.reserve(known_.size() + 1);
    auto retained = std::make_unique<std::shared_ptr<Capture>>(capture);
    capture->graphs_.fetch_add(1, std::memory_order_relaxed);
    driver().retain_by_capture(stream, release, retained.release());
    known_.push_back({id, capture});
    return capture;
  }

 private:
  struct Known {
    std::uint64_t id = 0;  ///< of the driver
    std::shared_ptr<Capture> capture;
  };

  static void release(void* data) {
    const std::unique_ptr<std::shared_ptr<Capture>> retained(
        static_cast<std::shared_ptr<Capture>*>(data));
    [[maybe_unused]] const auto before =
        (*retained)->graphs_.fetch_sub(1, std::memory_order_release);
    GANTRY_ASSERT(before > 0, "more graphs of a capture end than were made");
  }

  std::mutex mutex_;
  std::vector<Known> known_;
  std::map<MemPoolId, std::weak_ptr<Capture>> shared_;
};

namespace {

constinit std::atomic<void (*)() noexcept> before_captures{nullptr};

std::shared_ptr<Capture> capture_of(const NativeStream& stream, MemPoolId pool) {
  const std::uint64_t id = driver().capture_id(stream);
  if (id == 0) return nullptr;
  CaptureDevices::note(id, stream.device);
  return CaptureRegistry::instance().find_or_add(stream, id, pool);
}

}  // namespace

std::shared_ptr<Capture> capture_of(const NativeStream& stream) {
  return capture_of(stream, MemPoolId::none);
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

void call_before_captures(void (*function)() noexcept) noexcept {
  before_captures.store(function, std::memory_order_release);
}

std::shared_ptr<Capture> begin_capture(const Stream& stream, CaptureMode mode, MemPoolId pool) {
  if (const auto function = before_captures.load(std::memory_order_acquire)) function();
  driver().begin_capture(stream.native(), mode);
  try {
    static_cast<void>(StreamClock::of(stream).is_captured());  // notes it, for frees
    return capture_of(stream.native(), pool);
  } catch (...) {
    abandon_capture(stream);
    throw;
  }
}

void abandon_capture(const Stream& stream) noexcept {
  try {
    driver().destroy_graph(driver().end_capture(stream.native()));
  } catch (...) {
    // The capture was spoilt. That ended it, too.
  }
}

}  // namespace gantry
