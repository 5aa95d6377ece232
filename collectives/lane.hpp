#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gantry/device/driver.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Operations of a lane run one after the other, whatever streams they are called on.
class Lane {
 public:
  explicit Lane(int device) : device_(device) {}
  ~Lane() {
    for (const Capture& one : captures_) driver().destroy_event(one.event);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // In a graph, too, whichever branches they are captured in. But graphs are ordered among each
  // other, and with the rest, by whoever launches them: an event from outside cannot be waited for
  // in a capture.
  void enter(const Stream& stream) {
    const bool is_captured = driver().is_capturing(stream.native());
    capture_ = is_captured ? &capture_of(driver().capture_id(stream.native())) : nullptr;
    if (capture_ == nullptr) {
      if (last_ && last_stream_ != stream.id()) last_->wait(stream);
    } else if (capture_->last_stream != kNone && capture_->last_stream != stream.id()) {
      driver().wait_event(stream.native(), capture_->event);
    }
  }
  // Marks the end of the operation that entered. Returns the event, which nobody may record on
  // another stream, or nullptr in a capture.
  std::shared_ptr<Event> leave(const Stream& stream) {
    if (capture_ != nullptr) {
      driver().record_event(capture_->event, stream.native());
      capture_->last_stream = stream.id();
      return nullptr;
    }
    auto end = std::make_shared<Event>();
    end->record(stream);
    last_ = end;
    last_stream_ = stream.id();
    return end;
  }
  // Whether operations entered in captures, which may run at any time now.
  bool has_graphs() const { return !captures_.empty(); }
  // Makes `stream` wait for what is enqueued.
  void order_after(const Stream& stream) const {
    if (last_) last_->wait(stream);
  }
  // True while something is enqueued. Asks the driver.
  bool is_busy() const { return last_ && !driver().event_reached(last_->native_handle()); }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;
  // Captures at once in which operations may be called; of those that ended nobody tells.
  static constexpr std::size_t kMostCaptures = 8;

  // What came last in one capture.
  struct Capture {
    NativeEvent event = nullptr;
    std::uint64_t last_stream = kNone;
    std::uint64_t id = 0;
  };

  Capture& capture_of(std::uint64_t id) {
    const auto known = std::ranges::find(captures_, id, &Capture::id);
    if (known != captures_.end()) return *known;
    if (captures_.size() < kMostCaptures) {
      captures_.reserve(kMostCaptures);
      return captures_.emplace_back(Capture{driver().create_event(device_, {}), kNone, id});
    }
    Capture& oldest = *std::ranges::min_element(captures_, {}, &Capture::id);
    oldest.last_stream = kNone;
    oldest.id = id;
    return oldest;
  }

  int device_;
  std::shared_ptr<Event> last_;  // shared with the Work of what came last outside of captures
  std::uint64_t last_stream_ = kNone;
  std::vector<Capture> captures_;
  Capture* capture_ = nullptr;  // of what enters; nullptr: none
};

}  // namespace gantry
