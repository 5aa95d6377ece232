// The switch of profilers that wait for the program.
#pragma once

#include <gantry/core/export.hpp>

/// Begin and end of the part of a program that a profiler records, where it was told to wait for
/// them: `nsys profile --capture-range=cudaProfilerApi`. Without such a profiler, and on simulated
/// devices, the calls do nothing.
namespace gantry::profiler {

/// Begins the part to record. Thread safety: any thread. Throws: CudaError.
GANTRY_API void start();
/// Ends the part to record. Work that is not done yet may be missing: synchronize first.
/// Thread safety: any thread. Throws: CudaError.
GANTRY_API void stop();

/// A scope that the profiler records.
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
