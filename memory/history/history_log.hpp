// The events of all threads, in bounded memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "memory/history/history.hpp"

namespace gantry::memory {

/// The clock of the events; nanoseconds, the same on all threads, never backwards.
[[nodiscard]] std::int64_t history_clock_ns();

/// Keeps the newest events of all threads.
///
/// Note [Chunks of events]
/// A thread appends to a chunk of its own and never overwrites it, so a reader needs only the
/// count. A full chunk joins the list of full chunks. Once the list is long enough, a thread that
/// needs a chunk recycles the oldest one. Older events of other threads are hidden from then on.
/// Otherwise the history could show a free without its allocation, since the threads' chunks reach
/// back differently. A thread that ends leaves its chunk to the next thread.
///
/// Thread safety: every member may be called from any thread.
class HistoryLog {
 public:
  /// Returns the log of this process, which is never destroyed.
  [[nodiscard]] static HistoryLog& instance();

  /// Sets the least number of events to keep. Each thread needs memory for two chunks beside them.
  void set_capacity(std::size_t events);
  /// Appends an event of the calling thread; without a lock unless its chunk is full.
  void append(const RecordedEvent& event) noexcept;
  /// Removes all events recorded so far.
  void clear();
  /// Returns the newest events, at most the capacity, oldest first. Those of one thread stay in
  /// order.
  [[nodiscard]] std::vector<RecordedEvent> events() const;

 private:
  static constexpr std::uint32_t kChunkEvents = 1024;

  struct Chunk {
    std::array<RecordedEvent, kChunkEvents> events;
    std::atomic<std::uint32_t> count{0};
    Chunk* next_full = nullptr;  ///< next younger one
    bool owned = false;          ///< a thread appends to it
  };

  HistoryLog() = default;
  [[nodiscard]] Chunk* exchange(Chunk* full) noexcept;
  void recycle(Chunk& chunk) noexcept;
  void append_late(const RecordedEvent& event) noexcept;
  static void end_thread() noexcept;
  [[nodiscard]] Chunk* take_locked() noexcept;
  void push_full_locked(Chunk& chunk) noexcept;
  [[nodiscard]] Chunk* pop_full_locked() noexcept;
  static void put(Chunk& chunk, std::uint32_t at, const RecordedEvent& event) noexcept;

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

}  // namespace gantry::memory
