#include <mutex>
#include <unordered_map>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/cuda/cuda_fault.hpp"

namespace gantry {

namespace cuda {

namespace {

// Which device an event was made for. CUDA does not tell, and it is needed only in the rare moment
// when a fault has to be raised.
struct EventOwners {
  std::mutex mutex;
  std::unordered_map<NativeEvent, int> devices;
};

// Leaked: events may be destroyed by static destructors.
EventOwners& owners() {
  static EventOwners& instance = *new EventOwners;
  return instance;
}

void raise_fault_of(NativeEvent event) {
  if (!any_fault()) [[likely]] {
    return;
  }
  if (const int device = event_owner(event); device >= 0) raise_fault(device);
}

CUevent native(NativeEvent event) { return static_cast<CUevent>(event); }

}  // namespace

int event_owner(NativeEvent event) {
  EventOwners& all = owners();
  const std::lock_guard lock(all.mutex);
  const auto found = all.devices.find(event);
  return found == all.devices.end() ? -1 : found->second;
}

void own_event(NativeEvent event, int device) {
  EventOwners& all = owners();
  const std::lock_guard lock(all.mutex);
  all.devices[event] = device;
}

}  // namespace cuda

NativeEvent CudaDriver::create_event(int device, NativeEventFlags flags) {
  const cuda::ContextScope scope(device);
  unsigned bits = CU_EVENT_DEFAULT;
  if (!flags.timing) bits |= CU_EVENT_DISABLE_TIMING;
  if (flags.blocking) bits |= CU_EVENT_BLOCKING_SYNC;
  if (flags.interprocess) bits |= CU_EVENT_INTERPROCESS;
  CUevent event = nullptr;
  GANTRY_CUDA_CHECK(cuda::api().cuEventCreate(&event, bits), "creating an event", device);
  cuda::own_event(event, device);
  return event;
}

void CudaDriver::destroy_event(NativeEvent event) noexcept {
  if (event == nullptr) return;
  {
    cuda::EventOwners& all = cuda::owners();
    const std::lock_guard lock(all.mutex);
    all.devices.erase(event);
  }
  GANTRY_CUDA_WARN(cuda::api().cuEventDestroy(cuda::native(event)), "destroying an event");
}

void CudaDriver::record_event(NativeEvent event, NativeStream stream) {
  const cuda::ContextScope scope(stream);
  GANTRY_CUDA_CHECK(
      cuda::api().cuEventRecord(cuda::native(event), static_cast<CUstream>(stream.handle)),
      "recording an event", stream);
}

bool CudaDriver::query_event(NativeEvent event) {
  const cuda::RelaxedCaptureScope relaxed;
  const CUresult status = cuda::api().cuEventQuery(cuda::native(event));
  if (status == CUDA_ERROR_NOT_READY) return false;
  GANTRY_CUDA_CHECK_STATUS(status, "cuEventQuery", "querying an event");
  cuda::raise_fault_of(event);
  return true;
}

bool CudaDriver::event_reached(NativeEvent event) noexcept {
  const cuda::RelaxedCaptureScope relaxed;
  return cuda::api().cuEventQuery(cuda::native(event)) == CUDA_SUCCESS;
}

void CudaDriver::synchronize_event(NativeEvent event) {
  GANTRY_CUDA_CHECK(cuda::api().cuEventSynchronize(cuda::native(event)),
                    "synchronizing with an event");
  cuda::raise_fault_of(event);
}

float CudaDriver::elapsed_ms(NativeEvent begin, NativeEvent end) {
  float milliseconds = 0;
  GANTRY_CUDA_CHECK(
      cuda::api().cuEventElapsedTime(&milliseconds, cuda::native(begin), cuda::native(end)),
      "measuring the time between two events");
  return milliseconds;
}

}  // namespace gantry
