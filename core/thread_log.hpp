// The newest events of all threads, in bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/thread_end.hpp"

namespace gantry {

/// Keeps the newest events of all threads. An `Event` has its time in `time_ns`, of a clock that is
/// the same on all threads and never runs backwards. There is one log for each type of event, and
/// one source file that uses it: that file defines instance() and the variables of threads.
///
/// Note [Chunks of events]
/// A thread appends to a chunk of its own and never overwrites it, so a reader needs only the
/// count. A full chunk joins the list of full chunks. Once the list is long enough, a thread that
/// needs a chunk recycles the oldest one. Older events of other threads are hidden from then on.
/// Otherwise a reader could miss the cause of an event that it sees, since the threads' chunks
/// reach back differently. A thread that ends leaves its chunk to the next thread.
///
/// Thread safety: every member may be called from any thread.
template <class Event>
class ThreadLog {
 public:
  /// Returns the log of this process, which is never destroyed.
  [[nodiscard]] static ThreadLog& instance();

  /// Sets the least number of events to keep. Each thread needs memory for two chunks beside them.
  void set_capacity(std::size_t events);
  /// Appends an event of the calling thread; without a lock unless its chunk is full.
  void append(const Event& event) noexcept;
  /// Removes all events with a time up to `now_ns`.
  void clear(std::int64_t now_ns);
  /// Returns the newest events, at most the capacity, oldest first. Those of one thread stay in
  /// order.
  [[nodiscard]] std::vector<Event> events() const;

 private:
  static constexpr std::uint32_t kChunkEvents = 1024;

  struct Chunk {
    std::array<Event, kChunkEvents> events;
    std::atomic<std::uint32_t> count{0};
    Chunk* next_full = nullptr;  ///< next younger one
    bool owned = false;          ///< a thread appends to it
  };

  ThreadLog() = default;
  [[nodiscard]] Chunk* exchange(Chunk* full) noexcept;
  void recycle(Chunk& chunk) noexcept;
  void append_late(const Event& event) noexcept;
  static void end_thread() noexcept;
  [[nodiscard]] Chunk* take_locked() noexcept;
  void push_full_locked(Chunk& chunk) noexcept;
  [[nodiscard]] Chunk* pop_full_locked() noexcept;
  static void put(Chunk& chunk, std::uint32_t at, const Event& event) noexcept;

  static constinit thread_local Chunk* own_chunk;
  static constinit thread_local bool thread_has_ended;

  mutable std::mutex mutex_;
  std::size_t capacity_ = 0;
  std::vector<Chunk*> open_;  ///< chunks that threads append to, and those of ended threads
  Chunk* oldest_full_ = nullptr;
  Chunk* newest_full_ = nullptr;
  std::size_t full_count_ = 0;
  std::int64_t hidden_until_ns_ = std::numeric_limits<std::int64_t>::min();
};

// Thread-local objects that are destroyed later may still free memory: append_late.
template <class Event>
void ThreadLog<Event>::end_thread() noexcept {
  thread_has_ended = true;
  if (own_chunk != nullptr) instance().recycle(*std::exchange(own_chunk, nullptr));
}

template <class Event>
void ThreadLog<Event>::set_capacity(std::size_t events) {
  const std::lock_guard lock(mutex_);
  capacity_ = events;
  while (full_count_ > capacity_ / kChunkEvents + open_.size()) delete pop_full_locked();
}

template <class Event>
void ThreadLog<Event>::append(const Event& event) noexcept {
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

template <class Event>
void ThreadLog<Event>::put(Chunk& chunk, std::uint32_t at, const Event& event) noexcept {
  chunk.events[at] = event;
  chunk.count.store(at + 1, std::memory_order_release);
}

template <class Event>
typename ThreadLog<Event>::Chunk* ThreadLog<Event>::exchange(Chunk* full) noexcept {
  const std::lock_guard lock(mutex_);
  if (full != nullptr) push_full_locked(*full);
  return take_locked();
}

template <class Event>
void ThreadLog<Event>::recycle(Chunk& chunk) noexcept {
  const std::lock_guard lock(mutex_);
  if (chunk.count.load(std::memory_order_relaxed) == kChunkEvents) {
    push_full_locked(chunk);
  } else {
    chunk.owned = false;
  }
}

template <class Event>
void ThreadLog<Event>::append_late(const Event& event) noexcept {
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
template <class Event>
typename ThreadLog<Event>::Chunk* ThreadLog<Event>::take_locked() noexcept {
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

template <class Event>
void ThreadLog<Event>::push_full_locked(Chunk& chunk) noexcept {
  std::erase(open_, &chunk);
  chunk.owned = false;
  chunk.next_full = nullptr;
  (newest_full_ != nullptr ? newest_full_->next_full : oldest_full_) = &chunk;
  newest_full_ = &chunk;
  ++full_count_;
}

template <class Event>
typename ThreadLog<Event>::Chunk* ThreadLog<Event>::pop_full_locked() noexcept {
  Chunk* chunk = oldest_full_;
  oldest_full_ = chunk->next_full;
  if (oldest_full_ == nullptr) newest_full_ = nullptr;
  --full_count_;
  return chunk;
}

template <class Event>
void ThreadLog<Event>::clear(std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  hidden_until_ns_ = std::max(hidden_until_ns_, now_ns);
  while (full_count_ > 0) delete pop_full_locked();
}

template <class Event>
std::vector<Event> ThreadLog<Event>::events() const {
  std::vector<Event> events;
  std::size_t capacity = 0;
  {
    const std::lock_guard lock(mutex_);
    capacity = capacity_;
    const auto add = [&](const Chunk& chunk) {
      const std::uint32_t count = chunk.count.load(std::memory_order_acquire);
      std::copy_if(chunk.events.begin(), chunk.events.begin() + count, std::back_inserter(events),
                   [&](const Event& event) { return event.time_ns > hidden_until_ns_; });
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

}  // namespace gantry
