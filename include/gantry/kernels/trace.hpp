#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <gantry/core/export.hpp>

/// Traces: one file with the times of host operations, device work, memory events and collectives.
/// https://ui.perfetto.dev and chrome://tracing show it.
/// @since 0.3
namespace gantry::trace {

/// Limits of a trace.
/// @since 0.3
struct TraceOptions {
  /// Number of events to keep in memory. Later events are dropped and counted.
  std::size_t max_events = 1'000'000;
};

/// Counts of a trace that stop() wrote.
/// @since 0.3
struct TraceSummary {
  std::size_t events = 0;     ///< number of events in the file
  std::uint64_t dropped = 0;  ///< number of events beyond TraceOptions::max_events
};

/// Starts to record, for `path`. "{rank}" in the path is the rank of this process in its job (0
/// without one), and "{pid}" its process id.
///
/// Events stay in memory until stop() or a normal end of the process writes them. The file replaces
/// an older one atomically: a process that is killed leaves the older file or none. While nothing
/// is recorded, an operation costs one more load.
///
/// GANTRY_TRACE=path starts a trace when the program first uses a device. In a job its path needs
/// "{rank}" or "{pid}".
///
/// GPUs are recorded through CUPTI, which is loaded at the first call. Without it a warning is
/// logged, and the trace has no device work. Simulated devices record their tasks.
///
/// An arrow leads from the host event that submitted work to the work's event on its device.
///
/// The events of a stream nest, too. A kernel that GPUs start before its predecessor ends waits for
/// it, so its event begins with the predecessor's end.
/// Thread safety: any thread. Throws: InvalidArgument if a trace is being recorded, if `max_events`
/// is 0, or for an unknown placeholder.
/// @code
/// trace::start("trace.{rank}.json");
/// (void)ones({4}, "cuda:0").exp();
/// trace::stop();
/// @endcode
GANTRY_API void start(const std::filesystem::path& path, const TraceOptions& options = {});
/// Waits for the devices that this process uses, stops recording, and writes the file.
/// Recording also ends if this throws.
/// Thread safety: any thread. Throws: InvalidArgument if nothing is being recorded; Error if the
/// file cannot be written; CudaError.
GANTRY_API TraceSummary stop();
/// True between start() and stop().
[[nodiscard]] GANTRY_API bool is_recording() noexcept;

/// A scope that is recorded. The destructor logs a failure to write the file.
/// Example: `const trace::Recording recording("trace.{rank}.json");`
/// @since 0.3
class GANTRY_API Recording {
 public:
  /// start(path, options).
  explicit Recording(const std::filesystem::path& path, const TraceOptions& options = {});
  /// stop(), unless the program stopped it.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

/// A named range on the trace's line of the calling thread. Thread safety: one thread.
/// Example: `const trace::Range range("forward");`
/// @since 0.3
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

/// Writes the traces of several ranks into one. The monotonic clock aligns events of one machine,
/// the real-time clock those of different machines. The program gantry-trace does the same.
/// Throws: InvalidArgument if `parts` is empty, or for a file that is no trace of gantry; Error if
/// a file cannot be read or written.
GANTRY_API void merge(std::span<const std::filesystem::path> parts,
                      const std::filesystem::path& path);

}  // namespace gantry::trace
