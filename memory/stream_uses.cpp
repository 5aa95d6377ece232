#include "memory/stream_uses.hpp"

#include <algorithm>

#include "streams/event_pool.hpp"

namespace gantry::memory {

void StreamUses::add(NativeStream stream) {
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

bool PendingFrees::defer(StreamUses& block) noexcept {
  if (block.streams.empty()) return false;
  // The hold keeps the count above zero until every stream is marked.
  block.open_events = 1;
  unmarked_.push_back(&block);
  if (mark(block)) unmarked_.pop_back();
  return true;
}

// Marks what is not marked yet; true when nothing is left to mark.
bool PendingFrees::mark(StreamUses& block) {
  while (!block.streams.empty()) {
    const NativeStream stream = block.streams.back();
    try {
      PooledEvent event(stream.device);
      driver().record_event(event.get(), stream);
      queues_[stream].push_back({event.get(), &block});
      static_cast<void>(event.release());
    } catch (...) {
      return false;
    }
    block.streams.pop_back();
    ++block.open_events;
  }
  --block.open_events;
  return true;
}

void PendingFrees::mark_unmarked() {
  std::erase_if(unmarked_, [this](StreamUses* block) { return mark(*block); });
}

StreamUses* PendingFrees::pop(const NativeStream& stream, Queue& queue) {
  const Wait done = queue.front();
  queue.pop_front();
  EventPool::of(stream.device).release(done.event);
  return --done.block->open_events == 0 ? done.block : nullptr;
}

PendingFrees::Waits PendingFrees::waits() const {
  Waits result;
  for (const auto& [stream, queue] : queues_) {
    for (const Wait& wait : queue) result.events.push_back(wait.event);
  }
  for (const StreamUses* block : unmarked_) {
    result.streams.insert(result.streams.end(), block->streams.begin(), block->streams.end());
  }
  return result;
}

void PendingFrees::Waits::synchronize() const {
  for (const NativeStream& stream : streams) driver().synchronize_stream(stream);
  for (NativeEvent event : events) driver().synchronize_event(event);
}

bool PendingFrees::queues_empty() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace gantry::memory
