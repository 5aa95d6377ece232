// The trace that GANTRY_TRACE asks for.
#pragma once

#include <gantry/extend/driver.hpp>

namespace gantry::trace {

/// Starts the trace when the first device is used. Returns `driver` itself. Throws:
/// InvalidArgument for a path that all ranks of a job would write.
[[nodiscard]] Driver* start_if_wanted(Driver& driver);

}  // namespace gantry::trace
