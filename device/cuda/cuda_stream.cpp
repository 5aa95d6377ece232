#include "device/cuda/capture_bodies.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/cuda/cuda_fault.hpp"
#include "device/cuda/cuda_pool.hpp"
#include "device/cuda/stream_identities.hpp"
#include "device/drivers/capture_devices.hpp"
#include "device/drivers/cuda_platform.hpp"

namespace gantry {

namespace {

CUstream native(NativeStream stream) { return static_cast<CUstream>(stream.handle); }

}  // namespace

Driver::PriorityRange CudaDriver::priority_range(int device) {
  const cuda::ContextScope scope(device);
  PriorityRange range;
  GANTRY_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&range.least, &range.greatest),
                    "reading the stream priorities", device);
  return range;
}

NativeStream CudaDriver::create_stream(int device, int priority) {
  const cuda::ContextScope scope(device);
  const cuda::RelaxedCaptureScope relaxed;
  CUstream stream = nullptr;
  GANTRY_CUDA_CHECK(
      cuda::api().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority),
      "creating a stream", device);
  return {.device = device, .handle = stream};
}

void CudaDriver::destroy_stream(NativeStream stream) noexcept {
  if (stream.handle == nullptr) return;
  OpenCaptures::remove(stream.handle);
  GANTRY_CUDA_WARN(cuda::api().cuStreamDestroy(native(stream)), "destroying a stream");
}

std::uint64_t CudaDriver::stream_identity(NativeStream stream) {
  if (stream.handle == nullptr) return 0;
  const cuda::ContextScope scope(stream);
  auto& identities = cuda::StreamIdentities::instance();
  if (is_capturing(stream)) return identities.known(native(stream));
  unsigned long long identity = 0;
  GANTRY_CUDA_CHECK(cuda::api().cuStreamGetId(native(stream), &identity), "identifying a stream",
                    stream);
  identities.remember(native(stream), identity);
  return identity;
}

bool synchronizes_with_default(NativeStream stream) noexcept {
  if (stream.handle == nullptr || platform() != Platform::cuda) return false;
  try {
    const cuda::ContextScope scope(stream.device);
    unsigned int flags = 0;
    GANTRY_CUDA_CHECK(cudaStreamGetFlags(static_cast<cudaStream_t>(stream.handle), &flags),
                      "reading the flags of", stream);
    return (flags & cudaStreamNonBlocking) == 0;
  } catch (...) {
    return true;  // the sanitizer rather misses a race than reports a wrong one
  }
}

bool is_cuda_stream_idle(NativeStream stream) noexcept {
  try {
    const cuda::ContextScope scope(stream);
    const cuda::RelaxedCaptureScope relaxed;  // captures of other streams go on
    if (cuda::api().cuStreamQuery(native(stream)) != CUDA_SUCCESS) return false;
    cuda::observe_idle(stream);
    return true;
  } catch (...) {
    return false;
  }
}

bool may_look_at_cuda_stream(NativeStream stream) noexcept {
  const auto legacy = static_cast<void*>(cudaStreamLegacy);
  if (stream.handle != nullptr && stream.handle != legacy) return true;
  try {
    const cuda::ContextScope scope(stream);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    // For this stream it tells of captures of the others, and of all questions it alone is allowed.
    return cuda::api().cuStreamIsCapturing(native(stream), &status) == CUDA_SUCCESS;
  } catch (...) {
    return false;
  }
}

bool CudaDriver::query_stream(NativeStream stream) {
  const cuda::ContextScope scope(stream);
  cuda::refuse_in_body(stream, "cuStreamQuery", "querying work");
  const cuda::RelaxedCaptureScope relaxed;  // captures of other streams go on
  const CUresult status = cuda::api().cuStreamQuery(native(stream));
  if (status == CUDA_ERROR_NOT_READY) return false;
  GANTRY_CUDA_CHECK_STATUS(status, "cuStreamQuery", "querying work", stream);
  cuda::observe_idle(stream);
  cuda::raise_fault(stream.device);
  return true;
}

void CudaDriver::synchronize_stream(NativeStream stream) {
  const cuda::ContextScope scope(stream);
  cuda::refuse_in_body(stream, "cuStreamSynchronize", "synchronizing");
  const cuda::RelaxedCaptureScope relaxed;  // captures of other streams go on
  GANTRY_CUDA_CHECK(cuda::api().cuStreamSynchronize(native(stream)), "synchronizing", stream);
  cuda::raise_fault(stream.device);
}

void CudaDriver::wait_event(NativeStream stream, NativeEvent event) {
  const int owner = cuda::interprocess_owner(event);
  if (owner >= 0 && owner != stream.device) {
    return cuda::wait_for_other_device(stream, event, owner);
  }
  const cuda::ContextScope scope(stream);
  cuda::refuse_across_bodies(stream, static_cast<cudaEvent_t>(event));
  GANTRY_CUDA_CHECK(cuda::api().cuStreamWaitEvent(native(stream), static_cast<CUevent>(event),
                                                  CU_EVENT_WAIT_DEFAULT),
                    "waiting for an event", stream);
  if (!CaptureDevices::is_empty()) CaptureDevices::note(capture_id(stream), stream.device);
}

void CudaDriver::wait_external_event(NativeStream stream, NativeEvent event) {
  if (stream.handle == nullptr || !is_capturing(stream)) return wait_event(stream, event);
  const cuda::ContextScope scope(stream);
  cuda::refuse_in_body(stream, "cuStreamWaitEvent", "waiting for an external event");
  GANTRY_CUDA_CHECK(cuda::api().cuStreamWaitEvent(native(stream), static_cast<CUevent>(event),
                                                  CU_EVENT_WAIT_EXTERNAL),
                    "waiting for an external event", stream);
}

void CudaDriver::wait_for_word(NativeStream stream, const std::uint32_t* word,
                               std::uint32_t value) {
  const cuda::ContextScope scope(stream);
  // Page-locked memory has one address for the host and all devices.
  GANTRY_CUDA_CHECK(
      cuda::api().cuStreamWaitValue32(native(stream), reinterpret_cast<CUdeviceptr>(word), value,
                                      CU_STREAM_WAIT_VALUE_GEQ),
      "waiting for a word", stream);
}

void CudaDriver::launch_host_function(NativeStream stream, void (*function)(void*), void* data) {
  const cuda::ContextScope scope(stream);
  // CUDA would refuse the whole graph, at its end.
  cuda::refuse_in_body(stream, "cuLaunchHostFunc",
                       "launching a host function in the body of a condition");
  GANTRY_CUDA_CHECK(cuda::api().cuLaunchHostFunc(native(stream), function, data),
                    "launching a host function", stream);
}

}  // namespace gantry
