#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <gantry/core/export.hpp>

/// One file with what a program did, and when: operations of the host, work of the devices, memory
/// and collectives. https://ui.perfetto.dev and chrome://tracing show it.
namespace gantry::trace {

/// Limits of a trace.
struct TraceOptions {
  /// Number of events to keep in memory; later ones are dropped and counted.
  std::size_t max_events = 1'000'000;
};

/// What stop() wrote.
struct TraceSummary {
  std::size_t events = 0;     ///< in the file
  std::uint64_t dropped = 0;  ///< beyond the limit
};

/// Starts to record, for `path`. "{rank}" in the path is the rank of this process in its job (0
/// without one), and "{pid}" its process id.
///
/// The events stay in memory until stop() writes them, or the process ends normally. The file
/// replaces an older one as a whole, so a process that is killed leaves none, and never a broken
/// one. While nothing is recorded an operation pays for one load.
///
/// GANTRY_TRACE=path starts a trace when the program first uses a device.
///
/// GPUs are recorded through CUPTI, which is loaded at the first call; without it a warning is
/// logged, and the trace has no device work. Simulated devices record their tasks.
/// Thread safety: any thread. Throws: InvalidArgument if a trace is recorded already, if
/// `max_events` is 0, or for another placeholder than these.
GANTRY_API void start(const std::filesystem::path& path, const TraceOptions& options = {});
/// Waits for the devices that this process uses, stops to record, and writes the file.
/// Thread safety: any thread. Throws: InvalidArgument if nothing is recorded; Error if the file
/// cannot be written; CudaError. The trace is over in any case.
GANTRY_API TraceSummary stop();
/// True between start() and stop().
[[nodiscard]] GANTRY_API bool is_recording() noexcept;

/// A scope that is recorded. A failure to write the file is logged.
class GANTRY_API Recording {
 public:
  /// start(path, options).
  explicit Recording(const std::filesystem::path& path, const TraceOptions& options = {});
  /// stop(), unless the program stopped it.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

/// A part of the program with a name, on the line of its thread. Thread safety: one thread.
class GANTRY_API Range {
 public:
  /// Begins the range.
  explicit Range(std::string name);
  /// Ends it.
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  std::string name_;
  std::int64_t begin_ns_;
};

/// Writes the traces of several ranks into one. Events of one machine are placed by its monotonic
/// clock, those of different machines by their calendars. The program gantry-trace does the same.
/// Throws: InvalidArgument without parts, or for a file that is no trace of gantry; Error if a file
/// cannot be read or written.
GANTRY_API void merge(std::span<const std::filesystem::path> parts,
                      const std::filesystem::path& path);

}  // namespace gantry::trace
