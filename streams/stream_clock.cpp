#include "streams/stream_clock.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "device/drivers/capture_devices.hpp"
#include "device/drivers/memory_reclaim.hpp"
#include "device/idle_stream.hpp"
#include "device/platform/platform.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "streams/clock_registry.hpp"
#include "streams/event_pool.hpp"
#include "streams/stream_pool.hpp"

namespace gantry {
namespace {

void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
  std::uint64_t current = value.load(std::memory_order_relaxed);
  while (current < least && !value.compare_exchange_weak(current, least, std::memory_order_acq_rel,
                                                         std::memory_order_relaxed)) {
  }
}

[[noreturn]] void throw_captured(const StreamClock& clock) {
  const std::string device = Device::cuda(clock.device()).str();
  throw CudaError("Cannot wait for a stream that is being captured: " + device + ", stream " +
                      std::to_string(clock.id()),
                  900, "cudaErrorStreamCaptureUnsupported", device);
}

// Only the device can tell when work of the stream is complete.
[[noreturn]] void throw_during_capture(const StreamClock& clock) {
  const std::string device = Device::cuda(clock.device()).str();
  throw CudaError("Cannot wait for " + device + ", stream " + std::to_string(clock.id()) +
                      ": it takes a synchronization of the device, which a capture forbids",
                  900, "cudaErrorStreamCaptureUnsupported", device);
}

}  // namespace

VectorClock::~VectorClock() {
  for (const std::atomic<Page*>& page : pages_) delete page.load(std::memory_order_acquire);
}

void VectorClock::raise(std::uint32_t slot, std::uint64_t sequence) {
  if (slot >= kSlots || sequence == 0) return;
  std::atomic<Page*>& place = pages_[slot / kPageSlots];
  Page* page = place.load(std::memory_order_acquire);
  if (page == nullptr) {
    auto made = std::make_unique<Page>();
    if (place.compare_exchange_strong(page, made.get(), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      page = made.release();
    }
  }
  raise_to((*page)[slot % kPageSlots], sequence);
  std::uint32_t end = end_.load(std::memory_order_relaxed);
  while (end <= slot && !end_.compare_exchange_weak(end, slot + 1, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed)) {
  }
}

void VectorClock::copy_to(std::vector<std::uint64_t>& out) const {
  const std::uint32_t end = end_.load(std::memory_order_acquire);
  out.resize(end);
  for (std::uint32_t first = 0; first < end; first += kPageSlots) {
    const std::uint32_t count = std::min(kPageSlots, end - first);
    const Page* page = pages_[first / kPageSlots].load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < count; ++i) {
      out[first + i] = page == nullptr ? 0 : (*page)[i].load(std::memory_order_acquire);
    }
  }
}

/// The clock's lock, for sections that call the driver. A release of cached memory would ask
/// clocks.
class StreamClock::Section {
 public:
  explicit Section(StreamClock& clock) : lock_(clock.mutex_) {}

 private:
  const std::lock_guard<std::mutex> lock_;
  const NoReclaim scope_;
};

/// A recorded event that is not known to be reached.
struct StreamClock::PendingEvent {
  explicit PendingEvent(int device) : event(device) {}

  PooledEvent event;
  Timestamp timestamp;
};

StreamClock& StreamClock::of(const Stream& stream) {
  ClockRegistry& registry = ClockRegistry::instance();
  StreamClock* known = registry.find(stream.native().device, stream.id());
  if (known != nullptr) [[likely]] {
    return *known;
  }
  return registry.make(stream);
}

StreamClock* StreamClock::find(int device, std::uint64_t id) {
  return ClockRegistry::instance().find(device, id);
}

// Note [The per-thread default stream]
// cudaStreamPerThread is one handle for a separate stream of each thread. An event recorded on it
// by another thread would be on another stream. So its clocks are invalid from the beginning.
StreamClock::StreamClock(const Stream& stream, std::uint32_t slot)
    : native_(stream.native()),
      id_(stream.id()),
      slot_(slot),
      is_external_(!StreamPool::owns(stream.id())),
      invalidated_(StreamPool::is_per_thread(stream.native_handle())) {}

bool StreamClock::may_submit() const {
  if (!StreamPool::is_per_thread(native_.handle)) return !is_invalidated();
  return Stream::external(native_.handle, Device::cuda(device())).id() == id_;
}

void StreamClock::begin_timestamp(Timestamp& timestamp) {
  timestamp.clock = this;
  timestamp.sequence = last_sequence_.fetch_add(1, std::memory_order_acq_rel) + 1;
  vector_clock_.copy_to(timestamp.entries);
}

void StreamClock::record(NativeEvent event, Timestamp& timestamp) {
  timestamp.clock = nullptr;
  if (is_invalidated() || is_captured()) {
    driver().record_event(event, native_);
    return;
  }
  begin_timestamp(timestamp);
  driver().record_event(event, native_);
}

void StreamClock::join(const Timestamp& timestamp) {
  if (timestamp.clock == nullptr) {
    // The record of a capture, which this stream now takes part in, or of a stream without clock.
    static_cast<void>(is_captured());
    return;
  }
  if (timestamp.clock == this) return;
  GANTRY_ASSERT(timestamp.sequence < timestamp.clock->next_sequence(),
                "a stream waits for a record that was not made");
  if (timestamp.sequence <= vector_clock_.get(timestamp.clock->slot_)) return;
  for (std::size_t slot = 0; slot < timestamp.entries.size(); ++slot) {
    vector_clock_.raise(static_cast<std::uint32_t>(slot), timestamp.entries[slot]);
  }
  vector_clock_.raise(timestamp.clock->slot_, timestamp.sequence);
}

void StreamClock::complete(const Timestamp& timestamp) {
  if (timestamp.clock == nullptr || timestamp.sequence <= timestamp.clock->completed()) return;
  const ClockRegistry& registry = ClockRegistry::instance();
  for (std::size_t slot = 0; slot < timestamp.entries.size(); ++slot) {
    if (timestamp.entries[slot] == 0) continue;
    StreamClock* const waited_for = registry.at(static_cast<std::uint32_t>(slot));
    GANTRY_ASSERT(waited_for != nullptr, "a record was behind a stream that has no clock");
    waited_for->complete(timestamp.entries[slot]);
  }
  timestamp.clock->complete(timestamp.sequence);
}

void StreamClock::complete(std::uint64_t sequence) {
  GANTRY_ASSERT(sequence < next_sequence(), "a record is complete that was not made");
  raise_to(completed_, sequence);
}

bool StreamClock::is_captured() const {
  const bool captured = driver().is_capturing(native_);
  if (captured == may_be_captured() && !(captured && has_left_capture())) return captured;
  if (is_external_) {
    const std::uint64_t id = captured ? driver().capture_id(native_) : 0;
    seen_capture_.store(CaptureDevices::is_open(id) ? id : 0, std::memory_order_release);
  }
  captured_.store(captured, std::memory_order_relaxed);
  return captured;
}

bool StreamClock::has_left_capture() const noexcept {
  const std::uint64_t id = seen_capture_.load(std::memory_order_acquire);
  return id != 0 && !CaptureDevices::is_open(id);
}

std::shared_ptr<StreamClock::PendingEvent> StreamClock::record_event() {
  auto pending = std::make_shared<PendingEvent>(native_.device);
  pending_events_.reserve(pending_events_.size() + 1);
  begin_timestamp(pending->timestamp);
  driver().record_event(pending->event.get(), native_);
  // Another thread may have begun a capture meanwhile. A question about the event would spoil it.
  if (is_captured()) throw_captured(*this);
  GANTRY_ASSERT(pending_events_.empty() ||
                    pending_events_.back()->timestamp.sequence < pending->timestamp.sequence,
                "the events of a stream are not in the order of their records");
  pending_events_.push_back(pending);
  return pending;
}

// Takes the events out that are reached; the lock is held.
bool StreamClock::retire_completed() {
  std::size_t completed_events = 0;
  for (; completed_events < pending_events_.size(); ++completed_events) {
    const PendingEvent& pending = *pending_events_[completed_events];
    if (pending.timestamp.sequence > completed() && !driver().event_reached(pending.event.get()))
      break;
    complete(pending.timestamp);
  }
  GANTRY_ASSERT(completed_events == 0 ||
                    pending_events_[completed_events - 1]->timestamp.sequence <= completed(),
                "an event is dropped that is not reached");
  pending_events_.erase(pending_events_.begin(),
                        pending_events_.begin() + static_cast<std::ptrdiff_t>(completed_events));
  return completed_events != 0;
}

std::uint64_t StreamClock::record_external_sequence() noexcept {
  const std::uint64_t fallback = next_sequence();
  if (in_bad_fork()) return fallback;
  try {
    const Section section(*this);
    retire_completed();
    if (is_invalidated() || is_captured()) return fallback;
    return record_event()->timestamp.sequence;
  } catch (...) {
    return fallback;  // no event covers it: it takes a device-wide synchronization
  }
}

// The number is taken before the driver is asked, as for a record.
void StreamClock::complete_or_record() {
  if (pending_events_.empty()) {
    const auto timestamp = acquire_timestamp();
    begin_timestamp(*timestamp);
    if (is_idle(native_)) return complete(*timestamp);
  }
  record_event();
}

void StreamClock::verify() {
  const ClockRegistry& registry = ClockRegistry::instance();
  const std::lock_guard lock(mutex_);
  // Read first: both numbers may grow meanwhile.
  [[maybe_unused]] const std::uint64_t reached = completed();
  GANTRY_ASSERT(reached < next_sequence(), "a stream is complete beyond its last record");
  std::vector<std::uint64_t> entries;
  vector_clock_.copy_to(entries);
  for (std::size_t slot = 0; slot < entries.size(); ++slot) {
    if (entries[slot] == 0) continue;
    [[maybe_unused]] const StreamClock* const other = registry.at(static_cast<std::uint32_t>(slot));
    GANTRY_ASSERT(other != nullptr && other->slot_ == slot,
                  "a stream waited for one that has no clock");
    GANTRY_ASSERT(entries[slot] < other->next_sequence(),
                  "a stream waited for a record that was not made");
  }
  [[maybe_unused]] std::uint64_t last = 0;
  for (const auto& pending : pending_events_) {
    GANTRY_ASSERT(pending->timestamp.clock == this, "a stream keeps the event of another one");
    GANTRY_ASSERT(
        pending->timestamp.sequence > last && pending->timestamp.sequence < next_sequence(),
        "the events of a stream are not in the order of their records");
    last = pending->timestamp.sequence;
  }
}

bool StreamClock::is_covered(std::uint64_t sequence) const {
  if (pending_events_.empty()) return false;
  return sequence == UINT64_MAX || pending_events_.back()->timestamp.sequence >= sequence;
}

void StreamClock::cover(std::uint64_t sequence) noexcept {
  if (is_external_ || sequence <= completed() || in_bad_fork()) return;
  try {
    const Section section(*this);
    retire_completed();
    if (sequence <= completed() || is_covered(sequence)) return;
    if (!is_invalidated() && !is_captured() && may_look_at(native_)) record_event();
  } catch (...) {
    // No event can be recorded now: poll() tries again.
  }
}

bool StreamClock::poll(std::uint64_t wanted) noexcept {
  if (in_bad_fork()) return false;
  const std::uint64_t before = completed();
  try {
    const Section section(*this);
    retire_completed();
    if (completed() < wanted && !is_covered(wanted) && !is_external_ && !is_invalidated() &&
        !is_captured() && may_look_at(native_)) {
      complete_or_record();
    }
  } catch (...) {
    // No event can be recorded now: what is known stays as it was.
  }
  return completed() > before;
}

std::shared_ptr<StreamClock::PendingEvent> StreamClock::event_covering(std::uint64_t sequence) {
  const Section section(*this);
  for (const auto& pending : pending_events_) {
    if (pending->timestamp.sequence >= sequence) return pending;
  }
  if (is_external_ || is_invalidated()) return nullptr;
  if (is_captured()) throw_captured(*this);
  return record_event();
}

bool StreamClock::can_wait_for(std::uint64_t sequence, HostWait wait) noexcept {
  if (sequence <= completed()) return true;
  try {
    {
      const Section section(*this);
      const auto covers = [sequence](const auto& pending) {
        return pending->timestamp.sequence >= sequence;
      };
      if (std::ranges::any_of(pending_events_, covers)) return true;
    }
    if (wait != HostWait::anyhow) return false;
    if (is_external_ || is_invalidated()) return may_synchronize_devices();
    return !is_captured() && may_look_at(native_);
  } catch (...) {
    return wait == HostWait::anyhow;  // wait_for() throws the reason
  }
}

void StreamClock::wait_for(std::uint64_t sequence) {
  if (sequence <= completed()) return;
  const BlockingIsNeeded needed;
  const std::shared_ptr<PendingEvent> pending = event_covering(sequence);
  if (pending == nullptr) {
    if (!may_synchronize_devices()) throw_during_capture(*this);
    synchronize_device_clocks(device());
    return;
  }
  try {
    driver().synchronize_event(pending->event.get());
  } catch (const IndexError&) {  // work is over all the same
    complete(pending->timestamp);
    throw;
  }
  complete(pending->timestamp);
  const std::lock_guard lock(mutex_);
  std::erase(pending_events_, pending);
}

bool StreamClock::try_wait_for(std::uint64_t sequence, HostWait wait) {
  if (!can_wait_for(sequence, wait)) return false;
  try {
    wait_for(sequence);
    return true;
  } catch (const CudaError&) {
    if (can_wait_for(sequence, wait)) throw;
    return false;
  }
}

bool StreamClock::make_wait(StreamClock& waiter, std::uint64_t sequence) {
  sequence = std::min(sequence, next_sequence());
  if (waiter.happens_after(*this, sequence)) return true;
  if (waiter.is_captured() || (!is_external_ && !is_invalidated() && is_captured())) return false;
  std::shared_ptr<PendingEvent> pending;
  try {
    pending = event_covering(sequence);
  } catch (const CudaError&) {
    // Another thread may have begun a capture meanwhile.
    if (!can_wait_for(sequence)) return false;
    throw;
  }
  if (pending == nullptr) {
    if (!may_synchronize_devices()) return false;
    const BlockingIsNeeded needed;
    synchronize_device_clocks(device());
    return true;
  }
  driver().wait_event(waiter.native_, pending->event.get());
  waiter.join(pending->timestamp);
  return true;
}

bool StreamClock::make_wait_if_covered(NativeStream waiter, std::uint64_t sequence) {
  std::shared_ptr<PendingEvent> covering;
  {
    const Section section(*this);
    retire_completed();
    if (sequence <= completed()) return true;
    const auto found = std::ranges::find_if(pending_events_, [sequence](const auto& pending) {
      return pending->timestamp.sequence >= sequence;
    });
    if (found == pending_events_.end()) return false;
    covering = *found;
  }
  driver().wait_event(waiter, covering->event.get());
  return true;
}

void StreamClock::invalidate() {
  const std::lock_guard lock(mutex_);
  invalidated_.store(true, std::memory_order_release);
}

DeviceTimestamp::DeviceTimestamp(int device) {
  const std::vector<StreamClock*> clocks = ClockRegistry::instance().clocks_of(device);
  timestamps_.resize(clocks.size());
  for (std::size_t i = 0; i < clocks.size(); ++i) clocks[i]->begin_timestamp(timestamps_[i]);
}

void DeviceTimestamp::complete() const {
  for (const Timestamp& timestamp : timestamps_) StreamClock::complete(timestamp);
}

bool StreamClock::has_no_work() const {
  if (is_external_ || is_invalidated() || is_captured() || !may_look_at(native_)) {
    return last_sequence_.load(std::memory_order_relaxed) <= completed();
  }
  return is_idle(native_);
}

bool is_device_idle(int device) {
  return std::ranges::all_of(ClockRegistry::instance().clocks_of(device),
                             [](const StreamClock* clock) { return clock->has_no_work(); });
}

bool await_idle(std::span<const int> devices) noexcept {
  constexpr auto kTimeout = std::chrono::milliseconds(2);
  constexpr auto kLook = std::chrono::microseconds(50);
  try {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    for (;;) {
      if (std::ranges::all_of(devices, is_device_idle)) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(kLook);
    }
  } catch (...) {
    return false;
  }
}

bool may_synchronize_devices() noexcept {
  if (!OpenCaptures::is_empty()) return false;
  try {
    // Captures of simulated devices begin in the driver only.
    if (driver().platform() != Platform::cuda) return true;
    for (int device = 0; device < table_size(); ++device) {
      for (const StreamClock* clock : ClockRegistry::instance().clocks_of(device)) {
        if (clock->is_external() ? clock->may_be_captured() && !clock->has_left_capture()
                                 : clock->is_captured()) {
          return false;
        }
      }
    }
    return true;
  } catch (...) {
    return false;
  }
}

void synchronize_device_clocks(int device) {
  const DeviceTimestamp before(device);
  try {
    driver().synchronize_device(device);
  } catch (const IndexError&) {  // work is over all the same
    before.complete();
    throw;
  }
  before.complete();
}

}  // namespace gantry
