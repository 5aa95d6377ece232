#include <fmt/format.h>

#include <bit>
#include <map>
#include <mutex>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_event.hpp"

namespace gantry {

namespace {

static_assert(sizeof(NativeMemoryHandle) == sizeof(cudaIpcMemHandle_t));
static_assert(sizeof(NativeEventHandle) == sizeof(cudaIpcEventHandle_t));

// In which device's context an allocation was opened: it must be closed there.
struct OpenedMemory {
  std::mutex mutex;
  std::map<void*, int> devices;
};

// Leaked: imports may be closed by static destructors.
OpenedMemory& opened() {
  static OpenedMemory& instance = *new OpenedMemory;
  return instance;
}

}  // namespace

NativeMemoryHandle CudaDriver::export_memory(void* base) {
  const PointerInfo info = pointer_info(base);
  const cuda::ContextScope scope(info.device >= 0 ? info.device : current_device());
  const cuda::RelaxedCaptureScope relaxed;
  cudaIpcMemHandle_t handle{};
  GANTRY_CUDA_CHECK(cudaIpcGetMemHandle(&handle, base),
                    fmt::format("exporting the memory at {}", fmt::ptr(base)));
  return std::bit_cast<NativeMemoryHandle>(handle);
}

void* CudaDriver::open_memory(int device, const NativeMemoryHandle& handle) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  void* base = nullptr;
  GANTRY_CUDA_CHECK(cudaIpcOpenMemHandle(&base, std::bit_cast<cudaIpcMemHandle_t>(handle),
                                         cudaIpcMemLazyEnablePeerAccess),
                    "opening another process's memory", device);
  OpenedMemory& all = opened();
  const std::lock_guard lock(all.mutex);
  all.devices[base] = device;
  return base;
}

void CudaDriver::close_memory(void* base) {
  int device = -1;
  {
    // The entry stays: the address may be open more than once, and in one context only.
    OpenedMemory& all = opened();
    const std::lock_guard lock(all.mutex);
    const auto found = all.devices.find(base);
    if (found != all.devices.end()) device = found->second;
  }
  if (device < 0) {
    cuda::raise(cudaErrorInvalidValue, "cudaIpcCloseMemHandle",
                cuda::activity(fmt::format("closing {}, which was not opened", fmt::ptr(base))));
  }
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK_FREE(cudaIpcCloseMemHandle(base),
                         fmt::format("closing another process's memory at {}", fmt::ptr(base)),
                         device);
}

NativeEventHandle CudaDriver::export_event(NativeEvent event) {
  const int owner = cuda::event_owner(event);
  const cuda::ContextScope scope(owner >= 0 ? owner : current_device());
  const cuda::RelaxedCaptureScope relaxed;
  cudaIpcEventHandle_t handle{};
  GANTRY_CUDA_CHECK(cudaIpcGetEventHandle(&handle, static_cast<cudaEvent_t>(event)),
                    "exporting an event");
  return std::bit_cast<NativeEventHandle>(handle);
}

NativeEvent CudaDriver::open_event(int device, const NativeEventHandle& handle) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  cudaEvent_t event = nullptr;
  GANTRY_CUDA_CHECK(cudaIpcOpenEventHandle(&event, std::bit_cast<cudaIpcEventHandle_t>(handle)),
                    "opening another process's event", device);
  cuda::own_event(event, device, /*interprocess=*/true);
  return event;
}

}  // namespace gantry
