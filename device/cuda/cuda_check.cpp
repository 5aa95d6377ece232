#include "device/cuda/cuda_check.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/stacks/call_place.hpp"
#include "device/drivers/memory_reclaim.hpp"
#include "device/drivers/stream_names.hpp"

namespace gantry::cuda {

namespace {

// "api().cuEventRecord(event, stream)" -> "cuEventRecord"
std::string_view function_name(std::string_view call) {
  for (std::size_t at = call.find("cu"); at != std::string_view::npos;
       at = call.find("cu", at + 1)) {
    const auto end = call.find_first_not_of(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", at);
    if (end == std::string_view::npos || call[end] == '(') return call.substr(at, end - at);
  }
  return call;
}

std::string message(cudaError_t status, std::string_view call, std::string_view doing) {
  // Driver and runtime number their errors alike, so one table serves both.
  return fmt::format("Failed {}: {} ({}): {} [{}]", doing, cudaGetErrorName(status),
                     static_cast<int>(status), cudaGetErrorString(status), function_name(call));
}

}  // namespace

Activity activity(std::string_view doing) { return {std::string(doing), {}}; }

Activity activity(std::string_view doing, int device) {
  std::string name = Device::cuda(device).str();
  return {fmt::format("{} on {}", doing, name), name};
}

Activity activity(std::string_view doing, NativeStream stream) {
  return {fmt::format("{} on {}", doing, name_of_stream(stream)),
          Device::cuda(stream.device).str()};
}

bool is_worth_repeating(std::string_view /*doing*/, int device) noexcept {
  clear_error();
  return reclaim_memory(device);
}

bool is_worth_repeating(std::string_view doing, NativeStream stream) noexcept {
  return is_worth_repeating(doing, stream.device);
}

void raise(cudaError_t status, std::string_view call, const Activity& activity,
           std::source_location where) {
  clear_error();
  throw CudaError(
      message(status, call, activity.text) + capture_error_place(static_cast<int>(status)),
      static_cast<int>(status), cudaGetErrorName(status), activity.device, where);
}

void warn(cudaError_t status, std::string_view call, const char* doing) noexcept {
  clear_error();
  if (is_shutting_down(status)) return;
  try {
    logging::warn(message(status, call, doing));
  } catch (...) {  // no memory for the text: the warning is lost
  }
}

bool is_shutting_down(cudaError_t status) noexcept {
  return status == cudaErrorCudartUnloading || status == cudaErrorContextIsDestroyed;
}

void clear_error() noexcept { (void)cudaGetLastError(); }

}  // namespace gantry::cuda
