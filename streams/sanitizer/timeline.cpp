#include "streams/sanitizer/timeline.hpp"

#include <algorithm>

namespace gantry::sanitizer {

void Clock::raise(StreamIndex stream, std::uint64_t tick) {
  if (stream >= ticks_.size()) ticks_.resize(stream + 1);
  ticks_[stream] = std::max(ticks_[stream], tick);
}

void Clock::join(const Clock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (std::size_t i = 0; i < other.ticks_.size(); ++i) {
    ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
}

Clock& Timeline::own(StreamIndex stream) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  Clock& clock = streams_[stream];
  if (clock.get(stream) == 0) clock.raise(stream, 1);
  return clock;
}

Clock Timeline::release(StreamIndex stream) {
  Clock& clock = own(stream);
  Clock copy = clock;
  clock.raise(stream, clock.get(stream) + 1);
  return copy;
}

Clock Timeline::release_all() {
  Clock all;
  for (StreamIndex stream = 0; stream < streams_.size(); ++stream) all.join(release(stream));
  return all;
}

}  // namespace gantry::sanitizer
