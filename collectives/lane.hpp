#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gantry/device/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Operations of a lane run one after the other, whatever streams they are called on.
class Lane {
 public:
  explicit Lane(int device) : device_(device), eager_{driver().create_event(device, {})} {}
  ~Lane() {
    driver().destroy_event(eager_.event);
    for (const Order& one : captures_) driver().destroy_event(one.event);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // In a graph, too, whichever branches they are captured in. But graphs are ordered among each
  // other, and with the rest, by whoever launches them: an event from outside cannot be waited for
  // in a capture.
  void enter(const Stream& stream) {
    const bool is_captured = driver().is_capturing(stream.native());
    current_ = is_captured ? &order_in(driver().capture_id(stream.native())) : &eager_;
    const bool is_first = is_captured && current_->last == kNone;
    if (current_->last != stream.id() && !is_first) {
      driver().wait_event(stream.native(), current_->event);
    }
  }
  void leave(const Stream& stream) {
    driver().record_event(current_->event, stream.native());
    current_->last = stream.id();
  }
  // Makes `stream` wait for what is enqueued.
  void order_after(const Stream& stream) const {
    driver().wait_event(stream.native(), eager_.event);
  }
  // True while something is enqueued. Asks the driver.
  bool is_busy() const { return !driver().event_reached(eager_.event); }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;
  // Captures at once in which operations may be called; of those that ended nobody tells.
  static constexpr std::size_t kMostCaptures = 8;

  // What came last, outside of graphs or in one capture.
  struct Order {
    NativeEvent event = nullptr;
    std::uint64_t last = kNone;  // stream
    std::uint64_t capture = 0;
  };

  Order& order_in(std::uint64_t capture) {
    const auto known = std::ranges::find(captures_, capture, &Order::capture);
    if (known != captures_.end()) return *known;
    if (captures_.size() < kMostCaptures) {
      captures_.reserve(kMostCaptures);
      return captures_.emplace_back(Order{driver().create_event(device_, {}), kNone, capture});
    }
    Order& oldest = *std::ranges::min_element(captures_, {}, &Order::capture);
    oldest.last = kNone;
    oldest.capture = capture;
    return oldest;
  }

  int device_;
  Order eager_;
  std::vector<Order> captures_;
  Order* current_ = nullptr;  // of what enters
};

}  // namespace gantry
