// Files of gantry::trace, in the JSON format that Perfetto and Chrome read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/trace_log.hpp"

namespace gantry::trace {

/// The process of a trace, and the moment of its start on two clocks.
struct TraceOrigin {
  int rank = 0;
  int pid = 0;
  std::string host;
  std::string boot;                ///< of the machine; empty if it does not tell
  std::int64_t start_ns = 0;       ///< of now_ns()
  std::int64_t start_unix_ns = 0;  ///< since 1970
};

/// Writes the events as a whole file. Device events follow all others, by stream and begin, and
/// nest on the line of their stream. Throws: Error if that fails.
void write_trace(const std::filesystem::path& path, const TraceOrigin& origin, Recorded recorded);

}  // namespace gantry::trace
