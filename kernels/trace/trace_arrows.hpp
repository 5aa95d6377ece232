// The arrows of a trace, from the host events that submit device work to the events of that work.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/trace_log.hpp"

namespace gantry::trace {

/// True for the events of a device's streams. Others are counters, or stand on threads of the host.
[[nodiscard]] bool stands_on_stream(const TraceEvent& event);

/// Both ends of an arrow, as indices of events.
struct Arrow {
  std::size_t host = 0;    ///< the innermost event around the submission
  std::size_t device = 0;  ///< the work
};

/// The arrows of `events`, by their host events. The events of a line stand together, by their
/// begin, and nest. Work whose submission lies in no event of its thread has no arrow.
[[nodiscard]] std::vector<Arrow> find_arrows(std::span<const TraceEvent> events);

}  // namespace gantry::trace
