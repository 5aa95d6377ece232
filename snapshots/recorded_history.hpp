// The recorded history with its texts and annotations, which snapshots show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/history/history.hpp"

namespace gantry::memory {

/// A copy of the recorded history.
struct RecordedHistory {
  std::vector<RecordedEvent> events;  ///< oldest first
  std::vector<std::string> metadata;  ///< by RecordedEvent::metadata; the first one is empty
  std::vector<Annotation> annotations;
  std::int64_t epoch_us = 0;  ///< microseconds since 1970 at time_ns 0
};
[[nodiscard]] RecordedHistory recorded_history();

}  // namespace gantry::memory
