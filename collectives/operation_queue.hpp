#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "streams/graphs/condition.hpp"

namespace gantry {

// Orders operations: the operations of one queue run one after the other, on any streams.
class OperationQueue {
 public:
  explicit OperationQueue(int device) : device_(device) {}
  ~OperationQueue() {
    for (const Capture& one : captures_) driver().destroy_event(one.event);
  }
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  // Makes `stream` wait for the previous operation. Operations in one capture are ordered, too, on
  // all branches. The program orders graphs among each other and with other work, because a capture
  // cannot wait for an event from outside. An operation in the body of a condition is a part of the
  // stream around the body.
  // Throws: CaptureError in a body, if the previous operation of the capture is on another stream
  // than the one around the body: a body cannot wait for an event from outside.
  void enter(const Stream& stream) {
    const bool is_captured = driver().is_capturing(stream.native());
    capture_ = is_captured ? &capture_of(driver().capture_id(stream.native())) : nullptr;
    if (capture_ == nullptr) {
      if (last_ && last_stream_ != stream.id()) last_->wait(stream);
      return;
    }
    const std::optional<Stream> around = stream_around(stream);
    const std::optional<Stream>& last = capture_->last;
    if (last && *last != around.value_or(stream)) {
      if (around) {
        capture_ = nullptr;
        throw CaptureError(
            "collective: expected the group's earlier operations of the capture on the stream of "
            "graph_if or graph_while, but got the last one on another stream",
            stream.device().str());
      }
      if (!capture_->is_recorded) driver().record_event(capture_->event, last->native());
      driver().wait_event(stream.native(), capture_->event);
    }
  }
  // Records the end of the operation that entered. Returns the event, or nullptr in a capture. The
  // event must not be recorded on another stream. `end`: what another queue returned for it.
  std::shared_ptr<Event> leave(const Stream& stream, std::shared_ptr<Event> end = nullptr) {
    if (capture_ != nullptr) {
      const std::optional<Stream> around = stream_around(stream);
      // Of a body, the event is recorded behind it, once another branch needs it.
      if (!around) driver().record_event(capture_->event, stream.native());
      capture_->is_recorded = !around;
      capture_->last = around.value_or(stream);
      return nullptr;
    }
    if (end == nullptr) {
      end = std::make_shared<Event>();
      end->record(stream);
    }
    last_ = end;
    last_stream_ = stream.id();
    return end;
  }
  // True if operations entered in captures: their graphs may run at any time.
  bool has_graphs() const { return !captures_.empty(); }
  // Makes `stream` wait for the enqueued operations.
  void order_after(const Stream& stream) const {
    if (last_) last_->wait(stream);
  }
  // True while an operation is incomplete. Queries the driver.
  bool is_busy() const { return last_ && !driver().event_reached(last_->native_handle()); }

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;
  // Captures whose last operation is kept. The end of a capture is not reported.
  static constexpr std::size_t kMostCaptures = 8;

  // The last operation in one capture.
  struct Capture {
    NativeEvent event = nullptr;
    std::uint64_t id = 0;
    std::optional<Stream> last = {};  // outside of bodies
    bool is_recorded = false;         // the event, behind the operation
  };

  Capture& capture_of(std::uint64_t id) {
    const auto known = std::ranges::find(captures_, id, &Capture::id);
    if (known != captures_.end()) return *known;
    if (captures_.size() < kMostCaptures) {
      captures_.reserve(kMostCaptures);
      return captures_.emplace_back(Capture{driver().create_event(device_, {}), id});
    }
    Capture& oldest = *std::ranges::min_element(captures_, {}, &Capture::id);
    oldest = {.event = oldest.event, .id = id};
    return oldest;
  }

  int device_;
  std::shared_ptr<Event> last_;  // shared with the Work of the last operation outside captures
  std::uint64_t last_stream_ = kNone;
  std::vector<Capture> captures_;
  Capture* capture_ = nullptr;  // of the operation that entered; nullptr: none
};

}  // namespace gantry
