#include "device/sim/sim_event.hpp"

#include <fmt/format.h>

#include <chrono>

#include "device/sim/devices/sim_error.hpp"
#include "device/sim/sim_driver.hpp"

namespace gantry::sim {

namespace {

constexpr unsigned kTimeBits = 40;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;
constexpr double kTimeUnitMs = 64e-6;

std::atomic<std::uint64_t> g_stamps{0};

// Number and time in one word, so that a late record of an old use never mixes with a new one.
std::uint64_t stamped(std::uint64_t stamp, std::uint64_t time) {
  return (stamp << kTimeBits) | (time & kTimeMask);
}

void write_time(SimEvent& event, std::uint64_t stamp) {
  if (event.current.load(std::memory_order_relaxed) != stamp) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  event.time.store(stamped(stamp, static_cast<std::uint64_t>(ns) / 64), std::memory_order_relaxed);
}

bool is_recorded(const EventRecord& record) {
  return record.stream != nullptr || record.shared_ticket != 0;
}

}  // namespace

EventTable::~EventTable() = default;

SimEvent* EventTable::create(int device, NativeEventFlags flags,
                             std::shared_ptr<SharedEvent> shared) {
  const std::lock_guard lock(mutex_);
  if (shared && shared_ == kMostShared) return nullptr;
  SimEvent* event = nullptr;
  if (unused_.empty()) {
    all_.push_back(std::make_unique<SimEvent>());
    event = all_.back().get();
  } else {
    event = unused_.back();
    unused_.pop_back();
  }
  const std::lock_guard event_lock(event->mutex);
  event->device = device;
  event->flags = flags;
  live_.insert(event);
  if (shared) ++shared_;
  event->shared = std::move(shared);
  return event;
}

bool EventTable::contains(const void* event) const {
  const std::shared_lock lock(mutex_);
  return live_.contains(event);
}

bool EventTable::destroy(SimEvent* event) {
  const std::lock_guard lock(mutex_);
  if (live_.erase(event) == 0) return false;
  const std::lock_guard event_lock(event->mutex);
  event->record = {};
  if (event->shared) --shared_;
  event->shared.reset();
  event->current.store(0, std::memory_order_relaxed);
  unused_.push_back(event);
  return true;
}

SimEvent& SimDriver::event_of(NativeEvent event, std::string_view doing) const {
  if (on_stream_thread()) fail(kNotPermitted, doing, -1, "a task on a stream called the driver");
  if (!events_.contains(event)) {
    fail(kInvalidResourceHandle, doing, -1, "there is no such event");
  }
  return *static_cast<SimEvent*>(event);
}

NativeEvent SimDriver::make_event(int device, NativeEventFlags flags,
                                  std::shared_ptr<SharedEvent> shared) {
  if (NativeEvent event = events_.create(device, flags, std::move(shared))) return event;
  fail(kMemoryAllocation, fmt::format("creating an event on cuda:{}", device), device,
       fmt::format("the process has {} interprocess events", EventTable::kMostShared));
}

NativeEvent SimDriver::create_event(int device, NativeEventFlags flags) {
  const std::string doing = fmt::format("creating an event on cuda:{}", device);
  (void)device_of(device, doing);
  if (flags.interprocess && flags.timing) {
    fail(kInvalidValue, doing, device, "an interprocess event cannot have timing");
  }
  return make_event(device, flags, flags.interprocess ? std::make_shared<SharedEvent>() : nullptr);
}

void SimDriver::destroy_event(NativeEvent event) noexcept {
  events_.destroy(static_cast<SimEvent*>(event));
}

NativeEventHandle SimDriver::export_event(NativeEvent event) {
  SimEvent& e = event_of(event, "exporting an event");
  if (!e.shared) {
    fail(kInvalidResourceHandle, "exporting an event", e.device,
         "the event was not made for other processes");
  }
  share();
  return e.shared->handle();
}

NativeEvent SimDriver::open_event(int device, const NativeEventHandle& handle) {
  (void)device_of(device, fmt::format("opening another process's event on cuda:{}", device));
  share();
  return make_event(device, {.timing = false, .blocking = false, .interprocess = true},
                    std::make_shared<SharedEvent>(handle, device));
}

void SimDriver::record_event(NativeEvent event, NativeStream stream) {
  SimStream& s = stream_of(stream, "recording an event");
  const std::string doing = "recording an event on " + s.name();
  SimEvent& e = event_of(event, doing);
  if (e.device != s.device()) {
    fail(kInvalidResourceHandle, doing, s.device(),
         fmt::format("the event was made on cuda:{}", e.device));
  }
  if (auto point = captures_.point(s)) {
    const std::lock_guard lock(e.mutex);
    e.record = {};
    e.record.capture = std::move(point);
    return;
  }
  static_cast<void>(submit_record(e, s));
}

void SimDriver::record_external_event(NativeEvent event, NativeStream stream) {
  SimStream& s = stream_of(stream, "recording an external event");
  const std::string doing = "recording an external event on " + s.name();
  const SimEvent& e = event_of(event, doing);
  if (e.device != s.device()) {
    fail(kInvalidResourceHandle, doing, s.device(),
         fmt::format("the event was made on cuda:{}", e.device));
  }
  if (!captures_.append_event(s, event, EventNode::record, doing)) record_event(event, stream);
}

// Outside of captures, or by the launch of a graph. Returns the ticket of the record.
std::uint64_t SimDriver::submit_record(SimEvent& e, SimStream& s) {
  const std::lock_guard lock(e.mutex);
  EventRecord record{.stream = &s};
  record.stamp = (g_stamps.fetch_add(1, std::memory_order_relaxed) + 1) & 0xff'ffff;
  Task body;
  if (e.shared) {
    record.shared_ticket = e.shared->begin_record();
    body = [shared = e.shared, ticket = record.shared_ticket] { shared->complete(ticket); };
  } else if (e.flags.timing) {
    e.current.store(record.stamp, std::memory_order_relaxed);
    body = [event = &e, stamp = record.stamp] { write_time(*event, stamp); };
  } else {
    body = [] {};
  }
  record.ticket = s.submit(std::move(body), {.always = true, .mark = true});
  e.record = record;
  return record.ticket;
}

// The record that counts now: another process may have recorded since this one did.
EventRecord SimDriver::record_of(SimEvent& event, const std::string& doing) {
  const std::lock_guard lock(event.mutex);
  EventRecord record = event.record;
  if (record.capture) captures_.refuse_captured_event(*record.capture, event.device, doing);
  if (event.shared) {
    const std::uint64_t last = event.shared->recorded();
    if (last != record.shared_ticket) record = {.stream = nullptr, .shared_ticket = last};
  }
  return record;
}

void SimDriver::wait_event(NativeStream stream, NativeEvent event) {
  SimStream& s = stream_of(stream, "waiting for an event");
  const std::string doing = "waiting for an event on " + s.name();
  SimEvent& e = event_of(event, doing);
  std::shared_ptr<const CapturePoint> point;
  {
    const std::lock_guard lock(e.mutex);
    point = e.record.capture;
  }
  if (point) {
    if (stream.handle == nullptr) captures_.refuse_default_stream(*point, s.device(), doing);
    captures_.join(s, *point);
    return;
  }
  const EventRecord record = record_of(e, doing);
  if (!is_recorded(record)) return;
  captures_.refuse_outside_event(s, doing);
  if (record.stream == nullptr) {
    s.submit([shared = e.shared, ticket = record.shared_ticket] { shared->wait(ticket); },
             {.always = true, .waits = KernelWaits::for_peers});
  } else if (record.stream != &s) {
    s.submit(
        [] {},
        {.always = true, .waits = record.stream->waits(), .after = {record.stream, record.ticket}});
  }
}

void SimDriver::wait_external_event(NativeStream stream, NativeEvent event) {
  SimStream& s = stream_of(stream, "waiting for an external event");
  const std::string doing = "waiting for an external event on " + s.name();
  static_cast<void>(event_of(event, doing));
  if (!captures_.append_event(s, event, EventNode::wait, doing)) wait_event(stream, event);
}

// By the launch of a graph. Returns the ticket of the wait.
std::uint64_t SimDriver::submit_wait(SimEvent& e, SimStream& s) {
  EventRecord record;
  {
    const std::lock_guard lock(e.mutex);
    record = e.record;
  }
  SimStream::Options options{.always = true, .mark = true};
  if (record.stream != nullptr && record.stream != &s) {
    options.waits = record.stream->waits();
    options.after = {record.stream, record.ticket};
  }
  return s.submit([] {}, options);
}

bool SimDriver::query_event(NativeEvent event) {
  const std::string doing = "querying an event";
  SimEvent& e = event_of(event, doing);
  const EventRecord record = record_of(e, doing);
  if (record.stream != nullptr) {
    record.stream->look(record.ticket);
    if (!record.stream->done(record.ticket)) return false;
    record.stream->acquire(record.ticket);
    record.stream->rethrow_error_before(record.ticket);
  } else if (record.shared_ticket != 0 && !e.shared->query(record.shared_ticket)) {
    return false;
  }
  devices_[static_cast<std::size_t>(e.device)]->raise_fault();
  return true;
}

bool SimDriver::event_reached(NativeEvent event) noexcept {
  if (on_stream_thread() || !events_.contains(event)) return false;
  auto& e = *static_cast<SimEvent*>(event);
  const std::lock_guard lock(e.mutex);
  const EventRecord& record = e.record;
  if (record.capture) {
    try {
      captures_.refuse_captured_event(*record.capture, e.device, "querying an event");
    } catch (...) {  // the capture is spoilt, as by CUDA
    }
    return false;
  }
  if (e.shared) {
    const std::uint64_t last = e.shared->recorded();
    if (last != record.shared_ticket || record.stream == nullptr) {
      return last == 0 || e.shared->is_reached(last);
    }
  }
  if (record.stream == nullptr) return true;
  record.stream->glance(record.ticket);
  if (!record.stream->done(record.ticket)) return false;
  record.stream->acquire(record.ticket);
  return !record.stream->failed_before(record.ticket);
}

void SimDriver::synchronize_event(NativeEvent event) {
  const std::string doing = "synchronizing with an event";
  SimEvent& e = event_of(event, doing);
  const EventRecord record = record_of(e, doing);
  if (record.stream != nullptr) {
    record.stream->wait(record.ticket);
    record.stream->acquire(record.ticket);
    record.stream->rethrow_error_before(record.ticket);
  } else if (record.shared_ticket != 0) {
    e.shared->wait(record.shared_ticket);
  }
  devices_[static_cast<std::size_t>(e.device)]->raise_fault();
}

float SimDriver::elapsed_ms(NativeEvent begin, NativeEvent end) {
  const std::string doing = "measuring the time between two events";
  SimEvent* const events[] = {&event_of(begin, doing), &event_of(end, doing)};
  std::uint64_t times[2] = {};
  for (int i = 0; i < 2; ++i) {
    SimEvent& e = *events[i];
    const EventRecord record = record_of(e, doing);
    if (!e.flags.timing) {
      fail(kInvalidResourceHandle, doing, e.device, "an event was made without timing");
    }
    if (record.stream == nullptr) {
      fail(kInvalidResourceHandle, doing, e.device, "an event was never recorded");
    }
    if (e.device != events[0]->device) {
      fail(kInvalidResourceHandle, doing, e.device, "the events belong to two devices");
    }
    if (!record.stream->done(record.ticket)) {
      fail(kNotReady, doing, e.device, "an event is not reached yet");
    }
    times[i] = e.time.load(std::memory_order_relaxed);
    if ((times[i] >> kTimeBits) != record.stamp) {
      fail(kNotReady, doing, e.device, "an event was recorded anew meanwhile");
    }
  }
  // Sign-extended difference of two 40-bit clocks.
  const auto ticks =
      static_cast<std::int64_t>((times[1] - times[0]) << (64 - kTimeBits)) >> (64 - kTimeBits);
  return static_cast<float>(static_cast<double>(ticks) * kTimeUnitMs);
}

}  // namespace gantry::sim
