// Orders, captures and memory of the tracker.
#include <algorithm>
#include <limits>

#include "streams/sanitizer/captured_call_site.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "streams/sanitizer/tracker.hpp"

namespace gantry::sanitizer {

void Tracker::record(NativeEvent event, const StreamPoint& at) {
  const std::lock_guard lock(mutex_);
  Line& line = line_of(at.capture);
  const StreamIndex index = arrive(line, at);
  EventRecord& record = events_[event];
  record.capture = at.capture;
  record.clock = line.time.release(index);
}

void Tracker::wait(const StreamPoint& at, NativeEvent event) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return;  // recorded before the sanitizer began, or never
  const EventRecord& record = found->second;
  // A wait for the record of a capture takes the stream into it; others are not allowed there.
  if (record.capture != at.capture) return;
  Line& line = line_of(at.capture);
  const StreamIndex index = arrive(line, at);
  line.time.acquire(index, record.clock);
  if (record.is_shared) line.time.acquire(index, line.time.release_all());
}

void Tracker::wait_for_unknown(const StreamPoint& at) {
  const std::lock_guard lock(mutex_);
  Line& line = line_of(at.capture);
  line.time.acquire(arrive(line, at), line.time.release_all());
}

void Tracker::wait_on_host(NativeEvent event) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end() || found->second.capture != 0) return;
  program_.time.acquire_on_host(found->second.clock);
  if (found->second.is_shared) program_.time.acquire_on_host(program_.time.release_all());
}

void Tracker::wait_on_host(const StreamPoint& at) {
  if (at.capture != 0) return;
  const std::lock_guard lock(mutex_);
  const StreamIndex index = arrive(program_, at);
  program_.time.acquire_on_host(program_.time.release(index));
}

void Tracker::wait_on_host_for_device(int device) {
  const std::lock_guard lock(mutex_);
  for (StreamIndex stream = 0; stream < streams_.size(); ++stream) {
    if (streams_[stream].name.device.index != device) continue;
    program_.time.acquire_on_host(program_.time.release(stream));
  }
}

void Tracker::order(const StreamPoint& before, const StreamPoint& after) {
  if (before.capture != after.capture) return;
  const std::lock_guard lock(mutex_);
  Line& line = line_of(before.capture);
  const Clock released = line.time.release(arrive(line, before));
  line.time.acquire(arrive(line, after), released);
}

void Tracker::follow(const void* queue, const StreamPoint& at) {
  const std::lock_guard lock(mutex_);
  const auto last = queues_.find({queue, at.capture});
  if (last == queues_.end()) return;
  Line& line = line_of(at.capture);
  line.time.acquire(arrive(line, at), last->second);
}

void Tracker::lead(const void* queue, const StreamPoint& at) {
  const std::lock_guard lock(mutex_);
  Line& line = line_of(at.capture);
  const StreamIndex index = arrive(line, at);
  queues_[{queue, at.capture}] = line.time.release(index);
}

void Tracker::forget_queue(const void* queue) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_, [queue](const auto& entry) { return entry.first.first == queue; });
}

void Tracker::share(NativeEvent event) {
  const std::lock_guard lock(mutex_);
  events_[event].is_shared = true;
}

void Tracker::forget(NativeEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

void Tracker::finish_capture(std::uint64_t capture, NativeGraph graph) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  GraphRecord record;
  if (found != captures_.end()) {
    record.accesses = std::move(found->second.all);
    captures_.erase(found);
  }
  if (graph != nullptr) graphs_[graph] = std::move(record);
}

void Tracker::finish_replay(NativeGraph graph, const StreamPoint& at) {
  if (at.capture != 0) return;
  const std::lock_guard lock(mutex_);
  const auto known = graphs_.find(graph);
  if (known == graphs_.end()) return;
  known->second.last_replay = program_.time.release(index_of(at));
}

void Tracker::update_graph(NativeGraph graph, NativeGraph source) {
  const std::lock_guard lock(mutex_);
  const auto from = graphs_.find(source);
  if (from != graphs_.end()) {
    graphs_[graph].accesses = from->second.accesses;
    unknown_graphs_.erase(graph);
  } else {
    graphs_.erase(graph);  // it does now what an unknown graph does
  }
}

void Tracker::forget_graph(NativeGraph graph) noexcept {
  const std::lock_guard lock(mutex_);
  graphs_.erase(graph);
  unknown_graphs_.erase(graph);
}

void Tracker::take_memory(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  program_.history.erase(begin, begin + bytes);
  for (auto& [capture, line] : captures_) line.history.erase(begin, begin + bytes);
  recorded_uses_.erase(data);
}

void Tracker::free_memory(const void* data, std::size_t bytes, const StreamClock* stream) {
  StreamPoint at;
  if (stream != nullptr) {
    const std::optional<StreamPoint> located = locate(stream->native());
    if (!located) return;
    at = *located;
  }
  AccessRecord freed;
  freed.bytes = Footprint(data, bytes);
  freed.is_write = true;
  freed.is_host = stream == nullptr;
  freed.sizes = {static_cast<std::int64_t>(bytes)};
  freed.call_site = captured_call_site();
  std::vector<Finding> found;
  {
    const std::lock_guard lock(mutex_);
    Line& line = line_of(at.capture);
    if (stream != nullptr) {
      freed.stream = arrive(line, at);
      streams_[freed.stream].name.id = stream->id();
    }
    freed.name = intern("free");
    const auto uses = recorded_uses_.find(data);
    found = find(line, {&freed, 1}, [&](const AccessRecord& earlier) {
      return uses != recorded_uses_.end() &&
             std::ranges::any_of(uses->second, [&](const RecordedUse& use) {
               return use.stream == earlier.stream && earlier.tick <= use.last_tick;
             });
    });
    line.history.erase(freed.bytes.begin(), freed.bytes.end());
    if (uses != recorded_uses_.end()) recorded_uses_.erase(uses);
  }
  report(found, false);
}

void Tracker::record_stream(const void* data, const Stream& stream, bool until_free) {
  const std::optional<StreamPoint> at = locate(stream.native());
  if (!at) return;
  const std::lock_guard lock(mutex_);
  const StreamIndex index = index_of(*at);
  RecordedUse use{.stream = index, .last_tick = std::numeric_limits<std::uint64_t>::max()};
  if (!until_free && at->capture == 0) {
    use.last_tick = program_.time.tick(index);
    static_cast<void>(program_.time.release(index));
  }
  recorded_uses_[data].push_back(use);
}

}  // namespace gantry::sanitizer
