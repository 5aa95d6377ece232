#pragma once

#include <cstdint>

#include <gantry/device/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Operations of a lane run one after the other, whatever streams they are called on.
class Lane {
 public:
  explicit Lane(int device)
      : event_(driver().create_event(device, {})),
        captured_event_(driver().create_event(device, {})) {}
  ~Lane() {
    driver().destroy_event(event_);
    driver().destroy_event(captured_event_);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // In a graph, too, whichever branches they are captured in. But graphs are ordered among each
  // other, and with the rest, by whoever launches them: an event from outside cannot be waited for
  // in a capture.
  void enter(const Stream& stream) {
    const bool is_captured = driver().is_capturing(stream.native());
    capture_ = is_captured ? driver().capture_id(stream.native()) : 0;
    if (!is_captured) {
      if (last_ != stream.id()) driver().wait_event(stream.native(), event_);
    } else if (last_capture_ == capture_ && last_captured_ != stream.id()) {
      driver().wait_event(stream.native(), captured_event_);
    }
  }
  void leave(const Stream& stream) {
    driver().record_event(capture_ != 0 ? captured_event_ : event_, stream.native());
    (capture_ != 0 ? last_captured_ : last_) = stream.id();
    if (capture_ != 0) last_capture_ = capture_;
  }
  // Makes `stream` wait for what is enqueued.
  void order_after(const Stream& stream) const { driver().wait_event(stream.native(), event_); }
  // True while something is enqueued. Asks the driver.
  bool is_busy() const { return !driver().event_reached(event_); }

 private:
  NativeEvent event_;
  NativeEvent captured_event_;
  std::uint64_t last_ = UINT64_MAX;           // stream of what was enqueued last
  std::uint64_t last_captured_ = UINT64_MAX;  // … of what was captured last
  std::uint64_t last_capture_ = 0;            // … and in which capture
  std::uint64_t capture_ = 0;                 // of what enters, 0: none
};

}  // namespace gantry
