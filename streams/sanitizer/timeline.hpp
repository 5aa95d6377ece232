// Happens-before between streams, as the program ordered them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gantry::sanitizer {

/// A stream's dense number in the sanitizer.
using StreamIndex = std::uint32_t;

// Note [Sanitizer clocks]
// StreamClock answers the allocator's question: may this memory be reused now? It may count work
// that polling found complete. The sanitizer must not: whether the same program races would then
// depend on timing. So it keeps its own vector clocks, which only the program's calls advance.
//   * A stream's own entry is its tick. An access is stamped with (stream, tick).
//   * A release (event record, synchronization with the stream) copies the clock, then advances the
//     tick. Accesses after it are not in the copy.
//   * An acquire (event wait) raises the entries to the entries of a copy.
//   * A host clock takes what a blocking call or a successful query waited for. It applies to all
//     later submissions of every thread, because the sanitizer does not see the order of host
//     threads. It thus misses races rather than reporting false ones.
// A capture has its own timeline, without a host clock, because its operations run at the replays.

/// The last tick of each stream that is ordered before something.
class Clock {
 public:
  [[nodiscard]] std::uint64_t get(StreamIndex stream) const {
    return stream < ticks_.size() ? ticks_[stream] : 0;
  }
  void raise(StreamIndex stream, std::uint64_t tick);
  void join(const Clock& other);

 private:
  std::vector<std::uint64_t> ticks_;
};

/// The clocks of all streams and of the host. Thread safety: none.
class Timeline {
 public:
  /// The tick of accesses that are submitted to `stream` now.
  [[nodiscard]] std::uint64_t tick(StreamIndex stream) { return own(stream).get(stream); }
  /// True if the access (`before`, `tick`) runs before work that is submitted to `after` now.
  [[nodiscard]] bool is_ordered(StreamIndex before, std::uint64_t tick, StreamIndex after) const {
    return before == after || is_over(before, tick) ||
           (after < streams_.size() && tick <= streams_[after].get(before));
  }
  /// True if the host waited for the access, or for something behind it.
  [[nodiscard]] bool is_over(StreamIndex stream, std::uint64_t tick) const {
    return tick <= host_.get(stream);
  }

  /// The work that is ordered before work behind this point of `stream`.
  [[nodiscard]] Clock release(StreamIndex stream);
  void acquire(StreamIndex stream, const Clock& clock) { own(stream).join(clock); }
  void acquire_on_host(const Clock& clock) { host_.join(clock); }
  /// Everything that was submitted to any stream so far.
  [[nodiscard]] Clock release_all();

 private:
  Clock& own(StreamIndex stream);

  std::vector<Clock> streams_;
  Clock host_;
};

}  // namespace gantry::sanitizer
