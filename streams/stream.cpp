#include <gantry/streams/stream.hpp>

#include <memory>
#include <optional>
#include <vector>

#include "device/platform.hpp"
#include "streams/event_pool.hpp"
#include "streams/require_cuda.hpp"
#include "streams/stream_clock.hpp"
#include "streams/stream_pool.hpp"

namespace gantry {
namespace {

// Note [Current streams at thread exit]
// Destructors of other thread-local and static objects may still ask for the current stream, so the
// table is a plain pointer that outlives its owner: once the owner is gone, every device is back on
// its default stream.
using StreamTable = std::vector<std::optional<Stream>>;
thread_local StreamTable* current_streams = nullptr;

struct StreamTableOwner {
  ~StreamTableOwner() {
    delete current_streams;
    current_streams = nullptr;
  }
};

StreamTable& own_table() {
  thread_local StreamTableOwner owner;
  static_cast<void>(owner);
  if (current_streams == nullptr) {
    current_streams = new StreamTable(static_cast<std::size_t>(table_size()));
  }
  return *current_streams;
}

// Marks what the host is about to wait for. The handle of a retired clock is another stream's.
void mark_if_live(const Stream& stream, ClockMark& mark) {
  StreamClock& clock = StreamClock::of(stream);
  if (!clock.is_retired()) clock.begin_mark(mark);
}

}  // namespace

Stream Stream::current(Device device) {
  const int index = require_cuda(device, "Stream::current");
  if (current_streams != nullptr) {
    if (const auto& set = (*current_streams)[static_cast<std::size_t>(index)]) return *set;
  }
  return {{index, nullptr}, 0, StreamPriority::normal};
}

Stream Stream::default_stream(Device device) {
  return {{require_cuda(device, "Stream::default_stream"), nullptr}, 0, StreamPriority::normal};
}

Stream Stream::from_pool(Device device, StreamPriority priority) {
  const StreamPool::Entry entry =
      StreamPool::of(require_cuda(device, "Stream::from_pool")).next(priority);
  return {entry.native, entry.identity.id, entry.identity.priority};
}

Stream Stream::external(void* native_handle, Device device) {
  const int index = require_cuda(device, "Stream::external");
  if (StreamPool::is_legacy(native_handle)) native_handle = nullptr;
  const StreamPool::Identity identity = StreamPool::of(index).identify(native_handle);
  return {{index, native_handle}, identity.id, identity.priority};
}

bool Stream::query() const {
  const auto mark = borrow_mark();
  mark_if_live(*this, *mark);
  if (!driver().query_stream(native_)) return false;
  StreamClock::complete(*mark);
  return true;
}

void Stream::synchronize() const {
  const auto mark = borrow_mark();
  mark_if_live(*this, *mark);
  driver().synchronize_stream(native_);
  StreamClock::complete(*mark);
}

void Stream::wait(const Event& event) const { event.wait(*this); }

void Stream::wait(const Stream& other) const {
  if (*this == other) return;
  const PooledEvent event(other.native_.device);
  const auto mark = borrow_mark();
  StreamClock::of(other).record(event.get(), *mark);
  driver().wait_event(native_, event.get());
  StreamClock::of(*this).join(*mark);
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
  own_table()[static_cast<std::size_t>(stream.native().device)] = stream;
}

}  // namespace gantry
