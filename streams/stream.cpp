#include <gantry/streams/stream.hpp>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/thread_end.hpp"
#include "device/checked_device_index.hpp"
#include "device/platform/platform.hpp"
#include "streams/capture.hpp"
#include "streams/capture_wait.hpp"
#include "streams/event_pool.hpp"
#include "streams/stream_clock.hpp"
#include "streams/stream_pool.hpp"

namespace gantry {
namespace {

// Note [Current streams at thread exit]
// Destructors of other thread-local and static objects may still call Stream::current(). So the
// table is a plain pointer. After the table is deleted, the current stream of every device is the
// default stream.
struct StreamTable {
  explicit StreamTable(std::size_t devices) : current(devices), capture(devices) {}
  std::vector<std::optional<Stream>> current;  ///< none: the default stream
  std::vector<std::optional<Stream>> capture;  ///< of the thread's captures
};
thread_local StreamTable* current_streams = nullptr;

StreamTable& own_table() {
  if (current_streams == nullptr) {
    current_streams = new StreamTable(static_cast<std::size_t>(table_size()));
    at_thread_end([]() noexcept { delete std::exchange(current_streams, nullptr); });
  }
  return *current_streams;
}

// Numbers the work that the host is about to wait for. The handle of an invalidated clock belongs
// to another stream.
void begin_if_valid(const Stream& stream, Timestamp& timestamp) {
  StreamClock& clock = StreamClock::of(stream);
  if (!clock.is_invalidated()) clock.begin_timestamp(timestamp);
}

}  // namespace

Stream Stream::current(Device device) {
  const int index = checked_device_index(device, "Stream::current");
  if (current_streams != nullptr) {
    if (const auto& set = current_streams->current[static_cast<std::size_t>(index)]) return *set;
  }
  return {{index, nullptr}, 0, StreamPriority::normal};
}

Stream Stream::default_stream(Device device) {
  return {
      {checked_device_index(device, "Stream::default_stream"), nullptr}, 0, StreamPriority::normal};
}

Stream Stream::from_pool(Device device, StreamPriority priority) {
  const StreamPool::Entry entry =
      StreamPool::of(checked_device_index(device, "Stream::from_pool")).next(priority);
  return {entry.native, entry.identity.id, entry.identity.priority};
}

Stream Stream::external(void* native_handle, Device device) {
  const int index = checked_device_index(device, "Stream::external");
  if (StreamPool::is_legacy(native_handle)) native_handle = nullptr;
  const StreamPool::Identity identity = StreamPool::of(index).identify(native_handle);
  return {{index, native_handle}, identity.id, identity.priority};
}

bool Stream::query() const {
  const auto timestamp = acquire_timestamp();
  begin_if_valid(*this, *timestamp);
  if (!driver().query_stream(native_)) return false;
  StreamClock::complete(*timestamp);
  return true;
}

void Stream::synchronize() const {
  const auto timestamp = acquire_timestamp();
  begin_if_valid(*this, *timestamp);
  driver().synchronize_stream(native_);
  StreamClock::complete(*timestamp);
}

void Stream::wait(const Event& event) const { event.wait(*this); }

void Stream::wait(const Stream& other) const {
  if (*this == other) return;
  const PooledEvent event(other.native_.device);
  const auto timestamp = acquire_timestamp();
  StreamClock::of(other).record(event.get(), *timestamp);
  wait_event(*this, event.get(), {other.native_.device, other.id()});
  StreamClock::of(*this).join(*timestamp);
}

Event Stream::record() const {
  Event event;
  event.record(*this);
  return event;
}

void Stream::record(Event& event) const { event.record(*this); }

std::ostream& operator<<(std::ostream& out, const Stream& stream) {
  return out << "stream " << stream.id() << " of " << stream.device();
}

void set_stream(const Stream& stream) {
  own_table().current[static_cast<std::size_t>(stream.native().device)] = stream;
}

Stream capture_stream(Device device) {
  auto& stream = own_table().capture[static_cast<std::size_t>(device.index)];
  if (!stream) stream = Stream::from_pool(device);
  return is_captured(stream->native()) ? Stream::from_pool(device) : *stream;
}

}  // namespace gantry
