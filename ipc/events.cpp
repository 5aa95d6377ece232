#include "ipc/events.hpp"

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

constinit std::atomic<std::size_t> IpcEvents::count_{0};

IpcEvents& IpcEvents::of(int device) {
  static auto& events = *new PerDevice<IpcEvents>();
  return events.get(device, [](int index) { return new IpcEvents(index); });
}

std::optional<NativeEventHandle> IpcEvents::record(NativeStream stream) {
  if (driver().query_stream(stream)) return std::nullopt;
  const std::uint64_t identity = driver().stream_identity(stream);
  std::unique_lock lock(mutex_);
  Slots& slots = streams_[identity];
  std::optional<Slot> slot = take_completed(slots);
  if (!slot) slot = create_if_possible(slots);
  if (!slot && slots.empty()) {
    lock.unlock();
    const BlockingIsNeeded needed;
    driver().synchronize_stream(stream);
    return std::nullopt;
  }
  if (!slot) {
    slot = slots.back();
    slots.pop_back();
  }
  slots.push_back(*slot);
  driver().record_event(slot->event, stream);
  driver().record_event(slot->local, stream);
  return slot->handle;
}

IpcEvents::Slot IpcEvents::create() const {
  Slot slot;
  try {
    slot.event =
        driver().create_event(device_, {.timing = false, .blocking = false, .interprocess = true});
    slot.local = driver().create_event(device_, {});
    slot.handle = driver().export_event(slot.event);
    return slot;
  } catch (...) {
    if (slot.local != nullptr) driver().destroy_event(slot.local);
    if (slot.event != nullptr) driver().destroy_event(slot.event);
    throw;
  }
}

std::optional<IpcEvents::Slot> IpcEvents::create_if_possible(const Slots& slots) const {
  if (count_ >= kMaxEvents && !slots.empty()) return std::nullopt;
  try {
    const Slot slot = create();
    ++count_;
    return slot;
  } catch (const CudaError&) {
    return std::nullopt;  // on a broken device the next call fails, too
  }
}

// The oldest event, if the stream has its share of events and this one is complete.
std::optional<IpcEvents::Slot> IpcEvents::take_completed(Slots& slots) const {
  if (slots.size() < kEventsPerStream || !driver().event_reached(slots.front().local)) {
    return std::nullopt;
  }
  GANTRY_ASSERT(count_ >= slots.size(), "a stream has events that were not made");
  const Slot slot = slots.front();
  slots.pop_front();
  return slot;
}

NativeEvent IpcEvents::find(const NativeEventHandle& handle) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, slots] : streams_) {
    for (const Slot& slot : slots) {
      if (slot.handle.bytes == handle.bytes) return slot.local;
    }
  }
  return nullptr;
}

}  // namespace gantry::memory
