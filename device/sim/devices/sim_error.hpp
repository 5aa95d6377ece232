// Errors of the simulator, with CUDA's numbers, names and texts.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>

#include "core/stacks/call_place.hpp"

namespace gantry::sim {

/// One cudaError_t.
struct ErrorCode {
  int number;
  std::string_view name;
  std::string_view text;
};

inline constexpr ErrorCode kInvalidValue{1, "cudaErrorInvalidValue", "invalid argument"};
inline constexpr ErrorCode kMemoryAllocation{2, "cudaErrorMemoryAllocation", "out of memory"};
inline constexpr ErrorCode kInvalidDevice{101, "cudaErrorInvalidDevice", "invalid device ordinal"};
inline constexpr ErrorCode kDeviceUninitialized{201, "cudaErrorDeviceUninitialized",
                                                "invalid device context"};
inline constexpr ErrorCode kPeerAccessUnsupported{
    217, "cudaErrorPeerAccessUnsupported",
    "peer access is not supported between these two devices"};
inline constexpr ErrorCode kOperatingSystem{304, "cudaErrorOperatingSystem",
                                            "OS call failed or operation not supported on this OS"};
inline constexpr ErrorCode kInvalidResourceHandle{400, "cudaErrorInvalidResourceHandle",
                                                  "invalid resource handle"};
inline constexpr ErrorCode kIllegalState{401, "cudaErrorIllegalState",
                                         "the operation cannot be performed in the present state"};
inline constexpr ErrorCode kNotReady{600, "cudaErrorNotReady", "device not ready"};
inline constexpr ErrorCode kIllegalAddress{700, "cudaErrorIllegalAddress",
                                           "an illegal memory access was encountered"};
inline constexpr ErrorCode kAlreadyRegistered{
    712, "cudaErrorHostMemoryAlreadyRegistered",
    "part or all of the requested memory range is already mapped"};
inline constexpr ErrorCode kNotRegistered{
    713, "cudaErrorHostMemoryNotRegistered",
    "pointer does not correspond to a registered memory region"};
inline constexpr ErrorCode kLaunchFailure{719, "cudaErrorLaunchFailure",
                                          "unspecified launch failure"};
inline constexpr ErrorCode kNotPermitted{800, "cudaErrorNotPermitted", "operation not permitted"};
inline constexpr ErrorCode kNotSupported{801, "cudaErrorNotSupported", "operation not supported"};
inline constexpr ErrorCode kCaptureUnsupported{900, "cudaErrorStreamCaptureUnsupported",
                                               "operation not permitted when stream is capturing"};
inline constexpr ErrorCode kCaptureInvalidated{
    901, "cudaErrorStreamCaptureInvalidated",
    "operation failed due to a previous error during capture"};
inline constexpr ErrorCode kCaptureMerge{
    902, "cudaErrorStreamCaptureMerge",
    "operation would result in a merge of separate capture sequences"};
inline constexpr ErrorCode kCaptureUnmatched{
    903, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"};
inline constexpr ErrorCode kCaptureUnjoined{904, "cudaErrorStreamCaptureUnjoined",
                                            "capturing stream has unjoined work"};
inline constexpr ErrorCode kCaptureIsolation{
    905, "cudaErrorStreamCaptureIsolation",
    "dependency created on uncaptured work in another stream"};
inline constexpr ErrorCode kCaptureImplicit{
    906, "cudaErrorStreamCaptureImplicit",
    "operation would make the legacy stream depend on a capturing blocking stream"};
inline constexpr ErrorCode kCapturedEvent{
    907, "cudaErrorCapturedEvent",
    "operation not permitted on an event last recorded in a capturing stream"};
inline constexpr ErrorCode kCaptureWrongThread{
    908, "cudaErrorStreamCaptureWrongThread",
    "attempt to terminate a thread-local capture sequence from another thread"};

/// Throws CudaError "Failed <doing>: <name> (<number>): <text>[; <why>]". `device` is -1 if none is
/// concerned.
[[noreturn]] inline void fail(const ErrorCode& code, std::string_view doing, int device = -1,
                              const std::string& why = {},
                              std::source_location where = std::source_location::current()) {
  std::string message = "Failed " + std::string(doing) + ": " + std::string(code.name) + " (" +
                        std::to_string(code.number) + "): " + std::string(code.text) +
                        capture_error_place(code.number);
  if (!why.empty()) message += "; " + why;
  throw CudaError(message, code.number, code.name,
                  device < 0 ? std::string() : "cuda:" + std::to_string(device), where);
}

}  // namespace gantry::sim
