#include "memory/ipc_events.hpp"

#include "streams/per_device.hpp"

namespace gantry::memory {

IpcEvents& IpcEvents::of(int device) {
  static auto& events = *new PerDevice<IpcEvents>();
  return events.get(device, [](int index) { return new IpcEvents(index); });
}

std::optional<NativeEventHandle> IpcEvents::mark(NativeStream stream) {
  if (driver().query_stream(stream)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Slot slot = slots_.size() < kCapacity ? make() : oldest();
  slots_.push_back(slot);
  driver().record_event(slot.event, stream);
  return slot.handle;
}

IpcEvents::Slot IpcEvents::make() const {
  NativeEvent event =
      driver().create_event(device_, {.timing = false, .blocking = false, .interprocess = true});
  try {
    return {event, driver().export_event(event)};
  } catch (...) {
    driver().destroy_event(event);
    throw;
  }
}

IpcEvents::Slot IpcEvents::oldest() {
  const Slot slot = slots_.front();
  driver().synchronize_event(slot.event);
  slots_.pop_front();
  return slot;
}

NativeEvent IpcEvents::find(const NativeEventHandle& handle) const {
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.handle.bytes == handle.bytes) return slot.event;
  }
  return nullptr;
}

}  // namespace gantry::memory
