#include "device/cuda/cuda_context.hpp"

#include <array>
#include <atomic>
#include <cstdint>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/drivers/background_calls.hpp"

namespace gantry::cuda {

namespace {

constexpr int kMaxDevices = 64;

// Contexts that were retained; never released, CUDA does it at the end of the process.
std::array<std::atomic<CUcontext>, kMaxDevices> retained{};

/// Note [Pending device]
/// restore_device() may have to return to a device without a context. It then leaves CUDA's current
/// device unchanged, and stores the requested device here. current_device() reports the stored
/// device until CUDA's current device changes, because code has then set another one.
struct PendingDevice {
  int device = -1;
  int actual = -1;
};
thread_local PendingDevice pending;

int actual_device() {
  int device = 0;
  GANTRY_CUDA_CHECK(cudaGetDevice(&device), "reading the current device");
  return device;
}

}  // namespace

CUcontext primary_context(int device) {
  std::atomic<CUcontext>& slot = retained.at(static_cast<std::size_t>(device));
  if (CUcontext known = slot.load(std::memory_order_acquire)) return known;
  const RelaxedCaptureScope relaxed;  // a capture may be the first to use the device
  CUcontext context = nullptr;
  GANTRY_CUDA_CHECK(api().cuDevicePrimaryCtxRetain(&context, device), "creating the context",
                    device);
  close_background_calls_at_exit();
  // Two threads may retain it at once; both get the same context.
  slot.store(context, std::memory_order_release);
  return context;
}

bool has_context(int device) noexcept {
  if (retained[static_cast<std::size_t>(device)].load(std::memory_order_acquire)) return true;
  unsigned flags = 0;
  int active = 0;
  return api().cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

ContextScope::ContextScope(NativeStream stream) {
  // 0, 1 and 2 are the default stream, cudaStreamLegacy and cudaStreamPerThread.
  if (reinterpret_cast<std::uintptr_t>(stream.handle) <= 2) enter(primary_context(stream.device));
}

ContextScope::ContextScope() {
  CUcontext current = nullptr;
  const auto status = static_cast<cudaError_t>(api().cuCtxGetCurrent(&current));
  if (current != nullptr || is_shutting_down(status)) return;
  GANTRY_CUDA_CHECK_STATUS(status, "cuCtxGetCurrent", "reading the current context");
  for (const std::atomic<CUcontext>& slot : retained) {
    if (CUcontext known = slot.load(std::memory_order_acquire)) {
      enter(known);
      return;
    }
  }
  enter(primary_context(current_device()));
}

void ContextScope::enter(CUcontext wanted) {
  CUcontext current = nullptr;
  const auto status = static_cast<cudaError_t>(api().cuCtxGetCurrent(&current));
  // While the process ends there is no context any more; what is called next says so if it matters.
  if (current == wanted || is_shutting_down(status)) return;
  GANTRY_CUDA_CHECK_STATUS(status, "cuCtxGetCurrent", "reading the current context");
  GANTRY_CUDA_CHECK(api().cuCtxPushCurrent(wanted), "making a context current");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  GANTRY_CUDA_WARN(api().cuCtxPopCurrent(&popped), "restoring the context");
}

RelaxedCaptureScope::RelaxedCaptureScope() noexcept {
  GANTRY_CUDA_WARN(api().cuThreadExchangeStreamCaptureMode(&mode_), "relaxing the capture mode");
}

RelaxedCaptureScope::~RelaxedCaptureScope() {
  GANTRY_CUDA_WARN(api().cuThreadExchangeStreamCaptureMode(&mode_), "restoring the capture mode");
}

int current_device() {
  const int actual = actual_device();
  if (pending.device >= 0 && pending.actual == actual) return pending.device;
  pending = {};
  return actual;
}

void set_device(int device) {
  if (actual_device() != device) {
    GANTRY_CUDA_CHECK(cudaSetDevice(device), "setting the current device", device);
  }
  pending = {};
}

void restore_device(int device) noexcept {
  int actual = 0;
  const cudaError_t status = cudaGetDevice(&actual);
  if (status != cudaSuccess) return warn(status, "cudaGetDevice", "restoring the current device");
  if (actual == device) {
    pending = {};
  } else if (has_context(device)) {
    pending = {};
    GANTRY_CUDA_WARN(cudaSetDevice(device), "restoring the current device");
  } else {
    pending = {device, actual};
  }
}

}  // namespace gantry::cuda
