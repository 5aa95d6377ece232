// Start and stop of external profilers.
#pragma once

#include <gantry/core/export.hpp>

/// Start and end of the part of a program that a profiler records. The profiler must be started so
/// that it waits for these calls: `nsys profile --capture-range=cudaProfilerApi`. Without such a
/// profiler, and on simulated devices, the calls have no effect.
/// @since 0.3
namespace gantry::profiler {

/// Starts recording. Thread safety: any thread. Throws: CudaError.
GANTRY_API void start();
/// Stops recording. Incomplete work may be missing from the record: synchronize first.
/// Thread safety: any thread. Throws: CudaError.
GANTRY_API void stop();

/// A scope that the profiler records.
/// Example: `const profiler::Scope recorded;  // by nsys profile --capture-range=cudaProfilerApi`
/// @since 0.3
class GANTRY_API Scope {
 public:
  /// start().
  Scope() { start(); }
  /// stop(); a failure is logged.
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace gantry::profiler
