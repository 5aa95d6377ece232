#include "memory/history/history_log.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "core/thread_end.hpp"

namespace gantry::memory {

thread_local constinit HistoryLog::Chunk* HistoryLog::own_chunk = nullptr;
thread_local constinit bool HistoryLog::thread_has_ended = false;

// Thread-local objects that are destroyed later may still free memory: append_late.
void HistoryLog::end_thread() noexcept {
  thread_has_ended = true;
  if (own_chunk != nullptr) instance().recycle(*std::exchange(own_chunk, nullptr));
}

HistoryLog& HistoryLog::instance() {
  static auto& log = *new HistoryLog();
  return log;
}

void HistoryLog::set_capacity(std::size_t events) {
  const std::lock_guard lock(mutex_);
  capacity_ = events;
  while (full_count_ > capacity_ / kChunkEvents + open_.size()) delete pop_full_locked();
}

void HistoryLog::append(const RecordedEvent& event) noexcept {
  Chunk* chunk = own_chunk;
  std::uint32_t count = chunk != nullptr ? chunk->count.load(std::memory_order_relaxed) : 0;
  if (chunk == nullptr || count == kChunkEvents) [[unlikely]] {
    if (thread_has_ended) return append_late(event);
    Chunk* const empty = exchange(chunk);
    if (chunk == nullptr && empty != nullptr) at_thread_end(end_thread);
    own_chunk = chunk = empty;
    if (chunk == nullptr) return;
    count = chunk->count.load(std::memory_order_relaxed);
  }
  put(*chunk, count, event);
}

void HistoryLog::put(Chunk& chunk, std::uint32_t at, const RecordedEvent& event) noexcept {
  chunk.events[at] = event;
  chunk.count.store(at + 1, std::memory_order_release);
}

HistoryLog::Chunk* HistoryLog::exchange(Chunk* full) noexcept {
  const std::lock_guard lock(mutex_);
  if (full != nullptr) push_full_locked(*full);
  return take_locked();
}

void HistoryLog::recycle(Chunk& chunk) noexcept {
  const std::lock_guard lock(mutex_);
  if (chunk.count.load(std::memory_order_relaxed) == kChunkEvents) {
    push_full_locked(chunk);
  } else {
    chunk.owned = false;
  }
}

void HistoryLog::append_late(const RecordedEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  Chunk* chunk = take_locked();
  if (chunk == nullptr) return;
  const std::uint32_t count = chunk->count.load(std::memory_order_relaxed);
  put(*chunk, count, event);
  if (count + 1 == kChunkEvents) {
    push_full_locked(*chunk);
  } else {
    chunk->owned = false;
  }
}

// A chunk with room, owned by the caller; nullptr if there is no memory for one.
HistoryLog::Chunk* HistoryLog::take_locked() noexcept {
  for (Chunk* chunk : open_) {
    if (!chunk->owned) {
      chunk->owned = true;
      return chunk;
    }
  }
  Chunk* chunk = nullptr;
  if (full_count_ > capacity_ / kChunkEvents + open_.size()) {
    chunk = pop_full_locked();
    hidden_until_ns_ = std::max(hidden_until_ns_, chunk->events.back().time_ns);
    chunk->count.store(0, std::memory_order_relaxed);
  } else {
    chunk = new (std::nothrow) Chunk;
    if (chunk == nullptr) return nullptr;
  }
  try {
    open_.push_back(chunk);
  } catch (const std::bad_alloc&) {
    delete chunk;
    return nullptr;
  }
  chunk->owned = true;
  return chunk;
}

void HistoryLog::push_full_locked(Chunk& chunk) noexcept {
  std::erase(open_, &chunk);
  chunk.owned = false;
  chunk.next_full = nullptr;
  (newest_full_ != nullptr ? newest_full_->next_full : oldest_full_) = &chunk;
  newest_full_ = &chunk;
  ++full_count_;
}

HistoryLog::Chunk* HistoryLog::pop_full_locked() noexcept {
  Chunk* chunk = oldest_full_;
  oldest_full_ = chunk->next_full;
  if (oldest_full_ == nullptr) newest_full_ = nullptr;
  --full_count_;
  return chunk;
}

void HistoryLog::clear() {
  const std::lock_guard lock(mutex_);
  hidden_until_ns_ = std::max(hidden_until_ns_, history_clock_ns());
  while (full_count_ > 0) delete pop_full_locked();
}

std::vector<RecordedEvent> HistoryLog::events() const {
  std::vector<RecordedEvent> events;
  std::size_t capacity = 0;
  {
    const std::lock_guard lock(mutex_);
    capacity = capacity_;
    const auto add = [&](const Chunk& chunk) {
      const std::uint32_t count = chunk.count.load(std::memory_order_acquire);
      std::copy_if(chunk.events.begin(), chunk.events.begin() + count, std::back_inserter(events),
                   [&](const RecordedEvent& event) { return event.time_ns > hidden_until_ns_; });
    };
    for (const Chunk* chunk = oldest_full_; chunk != nullptr; chunk = chunk->next_full) add(*chunk);
    for (const Chunk* chunk : open_) add(*chunk);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  if (events.size() > capacity) {
    events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(capacity));
  }
  return events;
}

std::int64_t history_moment_ns() {
  const auto later_than = [](std::int64_t time) {
    std::int64_t now = history_clock_ns();
    while (now <= time) now = history_clock_ns();
    return now;
  };
  const std::int64_t moment = later_than(history_clock_ns());
  static_cast<void>(later_than(moment));
  return moment;
}

std::int64_t history_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace gantry::memory
