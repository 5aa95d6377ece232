#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "device/cuda/capture_bodies.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/cuda/cuda_fault.hpp"
#include "device/cuda/cuda_pool.hpp"

namespace gantry {

namespace cuda {

namespace {

// Which device an event was made for. CUDA does not tell, and it is needed only in rare moments:
// when a fault has to be raised, and for interprocess events.
struct EventOwners {
  struct Owner {
    int device;
    bool interprocess;
  };

  std::mutex mutex;
  std::unordered_map<NativeEvent, Owner> by_event;
  std::atomic<std::size_t> interprocess = 0;  // how many of them
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
  const auto found = all.by_event.find(event);
  return found == all.by_event.end() ? -1 : found->second.device;
}

void own_event(NativeEvent event, int device, bool interprocess) {
  EventOwners& all = owners();
  const std::lock_guard lock(all.mutex);
  all.by_event[event] = {device, interprocess};
  if (interprocess) all.interprocess.fetch_add(1, std::memory_order_relaxed);
}

int interprocess_owner(NativeEvent event) {
  EventOwners& all = owners();
  if (all.interprocess.load(std::memory_order_relaxed) == 0) return -1;
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_event.find(event);
  return found == all.by_event.end() || !found->second.interprocess ? -1 : found->second.device;
}

// Note [Interprocess events of other devices]
// cuStreamWaitEvent ends in a segmentation fault if the stream and a pending interprocess event
// belong to different devices (driver 580.159; ordinary events work). A stream of the event's
// device waits instead, and an ordinary event forwards the wait. Each wait has its own stream and
// event, because unrelated waits on one stream would delay each other. Creating a stream may wait
// for the device, so callers that can use an ordinary event do so.
void wait_for_other_device(NativeStream stream, NativeEvent event, int owner) {
  struct Relay {
    ~Relay() {  // CUDA keeps both until they are done
      if (passed != nullptr) GANTRY_CUDA_WARN(api().cuEventDestroy(passed), "destroying an event");
      if (waits != nullptr) GANTRY_CUDA_WARN(api().cuStreamDestroy(waits), "destroying a stream");
    }
    CUstream waits = nullptr;
    CUevent passed = nullptr;
  } relay;
  {
    const ContextScope scope(owner);
    const RelaxedCaptureScope relaxed;
    GANTRY_CUDA_CHECK(
        api().cuStreamCreateWithPriority(&relay.waits, CU_STREAM_NON_BLOCKING, /*priority=*/0),
        "creating a stream", owner);
    GANTRY_CUDA_CHECK(api().cuEventCreate(&relay.passed, CU_EVENT_DISABLE_TIMING),
                      "creating an event", owner);
    GANTRY_CUDA_CHECK(api().cuStreamWaitEvent(relay.waits, native(event), CU_EVENT_WAIT_DEFAULT),
                      "waiting for an interprocess event", owner);
    GANTRY_CUDA_CHECK(api().cuEventRecord(relay.passed, relay.waits), "recording an event", owner);
  }
  const ContextScope scope(stream);
  GANTRY_CUDA_CHECK(api().cuStreamWaitEvent(static_cast<CUstream>(stream.handle), relay.passed,
                                            CU_EVENT_WAIT_DEFAULT),
                    "waiting for an event", stream);
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
  cuda::own_event(event, device, flags.interprocess);
  return event;
}

void CudaDriver::destroy_event(NativeEvent event) noexcept {
  if (event == nullptr) return;
  {
    cuda::EventOwners& all = cuda::owners();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_event.find(event);
    if (found != all.by_event.end()) {
      if (found->second.interprocess) all.interprocess.fetch_sub(1, std::memory_order_relaxed);
      all.by_event.erase(found);
    }
  }
  GANTRY_CUDA_WARN(cuda::api().cuEventDestroy(cuda::native(event)), "destroying an event");
}

void CudaDriver::record_event(NativeEvent event, NativeStream stream) {
  const cuda::ContextScope scope(stream);
  GANTRY_CUDA_CHECK(
      cuda::api().cuEventRecord(cuda::native(event), static_cast<CUstream>(stream.handle)),
      "recording an event", stream);
  auto& bodies = cuda::CaptureBodies::instance();
  if (!bodies.is_empty()) bodies.note_event(cuda::native(event), cuda::own_capture_id(stream));
}

// CUDA knows external records in captures only.
void CudaDriver::record_external_event(NativeEvent event, NativeStream stream) {
  if (stream.handle == nullptr || !is_capturing(stream)) return record_event(event, stream);
  const cuda::ContextScope scope(stream);
  cuda::refuse_in_body(stream, "cuEventRecordWithFlags", "recording an external event");
  GANTRY_CUDA_CHECK(
      cuda::api().cuEventRecordWithFlags(cuda::native(event), static_cast<CUstream>(stream.handle),
                                         CU_EVENT_RECORD_EXTERNAL),
      "recording an external event", stream);
}

bool CudaDriver::query_event(NativeEvent event) {
  const cuda::RelaxedCaptureScope relaxed;
  const CUresult status = cuda::api().cuEventQuery(cuda::native(event));
  if (status == CUDA_ERROR_NOT_READY) return false;
  GANTRY_CUDA_CHECK_STATUS(status, "cuEventQuery", "querying an event");
  cuda::observe_reached(cuda::native(event));
  cuda::raise_fault_of(event);
  return true;
}

bool CudaDriver::event_reached(NativeEvent event) noexcept {
  const cuda::RelaxedCaptureScope relaxed;
  if (cuda::api().cuEventQuery(cuda::native(event)) != CUDA_SUCCESS) return false;
  cuda::observe_reached(cuda::native(event));
  return true;
}

void CudaDriver::synchronize_event(NativeEvent event) {
  const cuda::RelaxedCaptureScope relaxed;
  GANTRY_CUDA_CHECK(cuda::api().cuEventSynchronize(cuda::native(event)),
                    "synchronizing with an event");
  cuda::raise_fault_of(event);
}

float CudaDriver::elapsed_ms(NativeEvent begin, NativeEvent end) {
  const cuda::RelaxedCaptureScope relaxed;
  float milliseconds = 0;
  GANTRY_CUDA_CHECK(
      cuda::api().cuEventElapsedTime(&milliseconds, cuda::native(begin), cuda::native(end)),
      "measuring the time between two events");
  return milliseconds;
}

}  // namespace gantry
