#include <gantry/streams/event.hpp>

#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>

#include "device/checked_device_index.hpp"
#include "streams/capture.hpp"
#include "streams/capture_wait.hpp"
#include "streams/event_pool.hpp"
#include "streams/interprocess_events.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {
namespace {

// Plain events come from the pool: a gantry event is made by its first record, so the earlier
// records of a pooled one have no effect.
bool is_pooled(const EventOptions& options) {
  return !options.timing && !options.blocking && !options.interprocess && !options.external;
}

// Where the driver has no room for another interprocess event, destroys retained ones that have no
// owner any more.
NativeEvent create_interprocess(int device, const NativeEventFlags& flags) {
  for (;;) {
    try {
      return driver().create_event(device, flags);
    } catch (const CudaError&) {
      if (!InterprocessEvents::destroy_oldest()) throw;
    }
  }
}

}  // namespace

Event::Event(EventOptions options) : options_(options) {
  if (options.interprocess && options.timing) {
    throw InvalidArgument(
        "Event: expected an interprocess event without timing, but got timing = true");
  }
  if (options.interprocess && options.external) {
    throw InvalidArgument(
        "Event: expected an interprocess event without nodes of graphs, but got external = true");
  }
}

Event Event::from_ipc(const IpcEventHandle& handle, Device device) {
  const int index = checked_device_index(device, "Event::from_ipc");
  Event event({.interprocess = true});
  event.event_ = driver().open_event(index, handle);
  event.device_ = index;
  event.recorded_ = true;
  return event;
}

Event::~Event() {
  if (event_ == nullptr || in_bad_fork()) return;
  if (is_pooled(options_)) {
    EventPool::of(device_).release(event_);
    return;
  }
  if (exported_) {
    InterprocessEvents::retain(event_);
    return;
  }
  try {
    driver().destroy_event(event_);
  } catch (...) {
    // The platform is shutting down; it takes the event with it.
  }
}

Event::Event(Event&& other) noexcept
    : options_(other.options_),
      device_(std::exchange(other.device_, -1)),
      event_(std::exchange(other.event_, nullptr)),
      recorded_(std::exchange(other.recorded_, false)),
      exported_(std::exchange(other.exported_, false)),
      timestamp_(std::move(other.timestamp_)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    Event taken(std::move(other));
    std::swap(options_, taken.options_);
    std::swap(device_, taken.device_);
    std::swap(event_, taken.event_);
    std::swap(recorded_, taken.recorded_);
    std::swap(exported_, taken.exported_);
    std::swap(timestamp_, taken.timestamp_);
  }
  return *this;
}

void Event::create(int device) {
  const NativeEventFlags flags{.timing = options_.timing,
                               .blocking = options_.blocking,
                               .interprocess = options_.interprocess};
  event_ = is_pooled(options_)     ? EventPool::of(device).acquire()
           : options_.interprocess ? create_interprocess(device, flags)
                                   : driver().create_event(device, flags);
  device_ = device;
  // Another process may record an exported event, so only the driver knows.
  recorded_ = options_.interprocess;
}

void Event::record(const Stream& stream) {
  if (is_created() && device_ != stream.native().device) {
    throw InvalidArgument("Event device " + device().str() +
                              " does not match recording stream's device " + stream.device().str() +
                              ".",
                          stream.device().str());
  }
  if (!is_created()) create(stream.native().device);
  // Another process or a replay may record it anew, so the record has no number.
  if (options_.interprocess) {
    driver().record_event(event_, stream.native());
  } else if (options_.external) {
    driver().record_external_event(event_, stream.native());
  } else {
    // The old timestamp stays if the record fails, as does the driver's old record.
    auto timestamp = acquire_timestamp();
    StreamClock::of(stream).record(event_, *timestamp);
    timestamp_ = std::move(timestamp);
  }
  recorded_ = true;
}

void Event::record() {
  record(Stream::current(is_created() ? Device::cuda(device_) : Device::cuda()));
}

void Event::wait(const Stream& stream) const {
  if (options_.external) {
    if (recorded_) return driver().wait_external_event(stream.native(), event_);
    if (!is_captured(stream.native())) return;
    throw InvalidArgument(
        "Event::wait: expected an external event with a record, but got one without, for which "
        "no replay could wait; record it before the capture",
        stream.device().str());
  }
  if (!recorded_) return;
  const StreamClock* const clock = timestamp_ == nullptr ? nullptr : timestamp_->clock;
  RecordPlace recorded{.device = device_};
  if (clock != nullptr) recorded.stream = clock->id();
  wait_event(stream, event_, recorded);
  if (timestamp_ != nullptr) StreamClock::of(stream).join(*timestamp_);
}

void Event::wait() const { wait(Stream::current()); }

bool Event::query() const {
  if (!recorded_) return true;
  if (!driver().query_event(event_)) return false;
  if (timestamp_ != nullptr) StreamClock::complete(*timestamp_);
  return true;
}

void Event::synchronize() const {
  if (!recorded_) return;
  driver().synchronize_event(event_);
  if (timestamp_ != nullptr) StreamClock::complete(*timestamp_);
}

float Event::elapsed_ms(const Event& end) const {
  if (!options_.timing || !end.options_.timing) {
    throw InvalidArgument("Both events must be created with timing = true.");
  }
  if (!recorded_ || !end.recorded_) {
    throw InvalidArgument("Both events must be recorded before calculating elapsed time.");
  }
  return driver().elapsed_ms(event_, end.event_);
}

IpcEventHandle Event::ipc_handle() {
  if (!options_.interprocess) {
    throw InvalidArgument(
        "Event::ipc_handle: expected an event made with interprocess = true, but got one "
        "without");
  }
  if (!is_created()) create(gantry::current_device().index);
  const IpcEventHandle handle = driver().export_event(event_);
  exported_ = true;
  return handle;
}

bool Event::is_created() const noexcept { return event_ != nullptr; }

Device Event::device() const {
  if (!is_created()) {
    throw InvalidArgument("Event::device: expected a recorded event, but got one without device");
  }
  return Device::cuda(device_);
}

}  // namespace gantry
