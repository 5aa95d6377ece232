// The order of two streams, asked without running them. For tests that are INTERNAL.
#pragma once

#include <cstdint>

#include <gantry/streams/stream.hpp>

#include "streams/stream_clock.hpp"

namespace gantry::testing {

/// A point in a stream's work: behind all that was submitted before it was made.
///
/// Hold the stream in front of it: work that is complete precedes everything. Thread safety: any
/// thread.
class StreamPosition {
 public:
  explicit StreamPosition(const Stream& stream)
      : clock_(&StreamClock::of(stream)), sequence_(clock_->next_sequence()) {}

  /// True if what is submitted to `later` from now on waits for this point.
  [[nodiscard]] bool precedes(const Stream& later) const {
    return StreamClock::of(later).happens_after(*clock_, sequence_);
  }

 private:
  StreamClock* clock_;
  std::uint64_t sequence_;
};

}  // namespace gantry::testing
