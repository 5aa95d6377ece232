#include "streams/stream_clock.hpp"

#include <algorithm>

#include <gantry/core/error.hpp>

#include "streams/clock_registry.hpp"
#include "streams/event_pool.hpp"
#include "streams/stream_pool.hpp"

namespace gantry {
namespace {

void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
  std::uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < least && !value.compare_exchange_weak(seen, least, std::memory_order_acq_rel,
                                                      std::memory_order_relaxed)) {
  }
}

}  // namespace

ClockRow::~ClockRow() {
  for (const std::atomic<Page*>& page : pages_) delete page.load(std::memory_order_acquire);
}

void ClockRow::raise(std::uint32_t slot, std::uint64_t mark) {
  if (slot >= kSlots || mark == 0) return;
  std::atomic<Page*>& place = pages_[slot / kPageSlots];
  Page* page = place.load(std::memory_order_acquire);
  if (page == nullptr) {
    auto made = std::make_unique<Page>();
    if (place.compare_exchange_strong(page, made.get(), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      page = made.release();
    }
  }
  raise_to((*page)[slot % kPageSlots], mark);
  std::uint32_t end = end_.load(std::memory_order_relaxed);
  while (end <= slot && !end_.compare_exchange_weak(end, slot + 1, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed)) {
  }
}

void ClockRow::copy_to(std::vector<std::uint64_t>& out) const {
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

/// An event that was recorded for a mark and is not known to be reached.
struct StreamClock::Flight {
  explicit Flight(int device) : event(device) {}

  PooledEvent event;
  ClockMark mark;
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
// cudaStreamPerThread is one handle for as many streams as there are threads, so nothing may be
// recorded on it from a thread that nobody knows: its clocks are retired from the beginning.
StreamClock::StreamClock(const Stream& stream, std::uint32_t slot)
    : native_(stream.native()),
      id_(stream.id()),
      slot_(slot),
      is_external_(!StreamPool::owns(stream.id())),
      retired_(StreamPool::is_per_thread(stream.native_handle())) {}

bool StreamClock::may_submit() const {
  if (!StreamPool::is_per_thread(native_.handle)) return !is_retired();
  return Stream::external(native_.handle, Device::cuda(device())).id() == id_;
}

void StreamClock::begin_mark(ClockMark& mark) {
  mark.clock = this;
  mark.mark = marks_.fetch_add(1, std::memory_order_acq_rel) + 1;
  seen_.copy_to(mark.seen);
}

void StreamClock::record(NativeEvent event, ClockMark& mark) {
  mark.clock = nullptr;
  if (is_retired() || is_captured()) {
    driver().record_event(event, native_);
    return;
  }
  begin_mark(mark);
  driver().record_event(event, native_);
}

void StreamClock::join(const ClockMark& mark) {
  if (mark.clock == nullptr) {
    // The record of a capture, which this stream now takes part in, or of a stream without clock.
    static_cast<void>(is_captured());
    return;
  }
  if (mark.clock == this) return;
  if (mark.mark <= seen_.get(mark.clock->slot_)) return;
  for (std::size_t slot = 0; slot < mark.seen.size(); ++slot) {
    seen_.raise(static_cast<std::uint32_t>(slot), mark.seen[slot]);
  }
  seen_.raise(mark.clock->slot_, mark.mark);
}

void StreamClock::complete(const ClockMark& mark) {
  if (mark.clock == nullptr || mark.mark <= mark.clock->completed()) return;
  const ClockRegistry& registry = ClockRegistry::instance();
  for (std::size_t slot = 0; slot < mark.seen.size(); ++slot) {
    if (mark.seen[slot] == 0) continue;
    registry.at(static_cast<std::uint32_t>(slot))->complete(mark.seen[slot]);
  }
  mark.clock->complete(mark.mark);
}

void StreamClock::complete(std::uint64_t mark) { raise_to(completed_, mark); }

bool StreamClock::is_captured() const {
  const bool captured = driver().is_capturing(native_);
  if (captured != may_be_captured()) captured_.store(captured, std::memory_order_relaxed);
  return captured;
}

std::shared_ptr<StreamClock::Flight> StreamClock::launch() {
  auto flight = std::make_shared<Flight>(native_.device);
  flights_.reserve(flights_.size() + 1);
  begin_mark(flight->mark);
  driver().record_event(flight->event.get(), native_);
  flights_.push_back(flight);
  return flight;
}

// Takes the events out that are reached; the lock is held.
bool StreamClock::land() {
  std::size_t landed = 0;
  for (; landed < flights_.size(); ++landed) {
    const Flight& flight = *flights_[landed];
    if (flight.mark.mark > completed() && !driver().event_reached(flight.event.get())) break;
    complete(flight.mark);
  }
  flights_.erase(flights_.begin(), flights_.begin() + static_cast<std::ptrdiff_t>(landed));
  return landed != 0;
}

std::uint64_t StreamClock::record_ticket() noexcept {
  const std::uint64_t fallback = next_mark();
  if (in_bad_fork()) return fallback;
  try {
    const std::lock_guard lock(mutex_);
    land();
    if (is_retired() || is_captured()) return fallback;
    return launch()->mark.mark;
  } catch (...) {
    return fallback;  // no event covers it: it takes a device-wide synchronization
  }
}

bool StreamClock::poll(std::uint64_t wanted) noexcept {
  if (in_bad_fork()) return false;
  const std::uint64_t before = completed();
  try {
    const std::lock_guard lock(mutex_);
    land();
    if (completed() < wanted && flights_.empty() && !is_external_ && !is_retired() &&
        !is_captured()) {
      launch();
    }
  } catch (...) {
    // The stream cannot be marked now; nothing is known about it, as before.
  }
  return completed() > before;
}

std::shared_ptr<StreamClock::Flight> StreamClock::flight_for(std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  for (const auto& flight : flights_) {
    if (flight->mark.mark >= mark) return flight;
  }
  if (is_external_ || is_retired()) return nullptr;
  if (is_captured()) {
    throw CudaError("Cannot wait for a stream that is being captured: " +
                        Device::cuda(device()).str() + ", stream " + std::to_string(id_),
                    900, "cudaErrorStreamCaptureUnsupported", Device::cuda(device()).str());
  }
  return launch();
}

bool StreamClock::can_wait_for(std::uint64_t mark) noexcept {
  if (mark <= completed()) return true;
  try {
    const std::lock_guard lock(mutex_);
    const auto covers = [mark](const auto& flight) { return flight->mark.mark >= mark; };
    return std::ranges::any_of(flights_, covers) || is_external_ || is_retired() || !is_captured();
  } catch (...) {
    return true;  // wait_for() tells why
  }
}

void StreamClock::wait_for(std::uint64_t mark) {
  if (mark <= completed()) return;
  const std::shared_ptr<Flight> flight = flight_for(mark);
  if (flight == nullptr) {
    synchronize_device_clocks(device());
    return;
  }
  try {
    driver().synchronize_event(flight->event.get());
  } catch (const IndexError&) {  // work is over all the same
    complete(flight->mark);
    throw;
  }
  complete(flight->mark);
  const std::lock_guard lock(mutex_);
  std::erase(flights_, flight);
}

bool StreamClock::order_before(StreamClock& waiter, std::uint64_t mark) {
  mark = std::min(mark, next_mark());
  if (waiter.is_after(*this, mark)) return true;
  if (waiter.is_captured() || (!is_external_ && !is_retired() && is_captured())) return false;
  const std::shared_ptr<Flight> flight = flight_for(mark);
  if (flight == nullptr) {
    synchronize_device_clocks(device());
    return true;
  }
  driver().wait_event(waiter.native_, flight->event.get());
  waiter.join(flight->mark);
  return true;
}

bool StreamClock::order_ticket(NativeStream waiter, std::uint64_t ticket) {
  std::shared_ptr<Flight> covering;
  {
    const std::lock_guard lock(mutex_);
    land();
    if (ticket <= completed()) return true;
    const auto found = std::ranges::find_if(
        flights_, [ticket](const auto& flight) { return flight->mark.mark >= ticket; });
    if (found == flights_.end()) return false;
    covering = *found;
  }
  driver().wait_event(waiter, covering->event.get());
  return true;
}

void StreamClock::retire() {
  const std::lock_guard lock(mutex_);
  retired_.store(true, std::memory_order_release);
}

DeviceMark::DeviceMark(int device) {
  const std::vector<StreamClock*> clocks = ClockRegistry::instance().clocks_of(device);
  marks_.resize(clocks.size());
  for (std::size_t i = 0; i < clocks.size(); ++i) clocks[i]->begin_mark(marks_[i]);
}

void DeviceMark::complete() const {
  for (const ClockMark& mark : marks_) StreamClock::complete(mark);
}

void synchronize_device_clocks(int device) {
  const DeviceMark before(device);
  try {
    driver().synchronize_device(device);
  } catch (const IndexError&) {  // work is over all the same
    before.complete();
    throw;
  }
  before.complete();
}

}  // namespace gantry
