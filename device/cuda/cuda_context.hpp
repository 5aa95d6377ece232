#pragma once

#include <cuda.h>

#include <gantry/extend/driver.hpp>

namespace gantry::cuda {

/// The primary context of `device`, created at the first call and kept.
[[nodiscard]] CUcontext primary_context(int device);

/// True if `device` has a primary context already, of any library.
[[nodiscard]] bool has_context(int device) noexcept;

/// Makes a device's primary context current for a scope.
///
/// Note [Contexts are pushed, not set]
/// cudaSetDevice creates a context on its device. If gantry restored the previous device by it,
/// that could create an unwanted context. Pushing and popping contexts creates none.
class ContextScope {
 public:
  explicit ContextScope(int device) { enter(primary_context(device)); }
  /// Needs a context only for the default stream: other streams know their own.
  explicit ContextScope(NativeStream stream);
  /// Any context: for calls that concern no device but want one.
  ContextScope();
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  void enter(CUcontext wanted);

  bool pushed_ = false;
};

/// Note [Calls in captures]
/// While a stream is captured, CUDA refuses "potentially unsafe" calls and spoils the capture:
/// allocations, frees, queries, mappings, peer access. The mode of the capture says on which
/// threads. They are unsafe for a program that records what they submit. The driver's calls submit
/// nothing, so each one relaxes the mode of its own thread (cudaThreadExchangeStreamCaptureMode).
/// CUDA still refuses calls that conflict with the capture itself in every mode: to query or
/// synchronize with a captured stream, a captured event, or a device with a captured stream.

/// Allows potentially unsafe calls to the thread while a stream is captured.
class RelaxedCaptureScope {
 public:
  RelaxedCaptureScope() noexcept;
  ~RelaxedCaptureScope();
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Calling thread's current device; see current_device of Driver.
[[nodiscard]] int current_device();
void set_device(int device);
void restore_device(int device) noexcept;

}  // namespace gantry::cuda
