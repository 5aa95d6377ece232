#include <exception>
#include <memory>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace gantry {

namespace {

cudaStream_t native(NativeStream stream) { return static_cast<cudaStream_t>(stream.handle); }

cudaStreamCaptureMode native(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::global:
      return cudaStreamCaptureModeGlobal;
    case CaptureMode::thread_local_:
      return cudaStreamCaptureModeThreadLocal;
    case CaptureMode::relaxed:
      return cudaStreamCaptureModeRelaxed;
  }
  __builtin_unreachable();
}

struct GraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept {
    GANTRY_CUDA_WARN(cudaGraphDestroy(graph), "destroying a captured graph");
  }
};

}  // namespace

void CudaDriver::begin_capture(NativeStream stream, CaptureMode mode) {
  const cuda::ContextScope scope(stream.device);
  GANTRY_CUDA_CHECK(cudaStreamBeginCapture(native(stream), native(mode)), "beginning a capture",
                    stream);
}

NativeGraph CudaDriver::end_capture(NativeStream stream) {
  const cuda::ContextScope scope(stream.device);
  cudaGraph_t captured = nullptr;
  GANTRY_CUDA_CHECK(cudaStreamEndCapture(native(stream), &captured), "ending the capture", stream);
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter> graph(captured);
  cudaGraphExec_t executable = nullptr;
  GANTRY_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0),
                    "instantiating the captured graph", stream);
  return executable;
}

bool CudaDriver::is_capturing(NativeStream stream) {
  // The default stream cannot be captured, and asking about it would spoil another stream's.
  if (stream.handle == nullptr) return false;
  const cuda::ContextScope scope(stream);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  GANTRY_CUDA_CHECK(cuda::api().cuStreamIsCapturing(static_cast<CUstream>(stream.handle), &status),
                    "asking for a capture", stream);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::uint64_t CudaDriver::capture_id(NativeStream stream) {
  if (stream.handle == nullptr) return 0;  // as above
  const cuda::ContextScope scope(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  GANTRY_CUDA_CHECK(cudaStreamGetCaptureInfo(native(stream), &status, &id), "asking for a capture",
                    stream);
  return status == cudaStreamCaptureStatusNone ? 0 : id;
}

void CudaDriver::retain_by_capture(NativeStream stream, void (*release)(void*), void* data) {
  CUuserObject object = nullptr;
  try {
    const cuda::ContextScope scope(stream);
    const cuda::RelaxedCaptureScope relaxed;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    GANTRY_CUDA_CHECK(cudaStreamGetCaptureInfo(native(stream), &status, &id, &graph),
                      "asking for the graph of a capture", stream);
    if (status != cudaStreamCaptureStatusActive) {
      GANTRY_CUDA_CHECK_STATUS(
          status == cudaStreamCaptureStatusNone ? cudaErrorIllegalState
                                                : cudaErrorStreamCaptureInvalidated,
          "cudaStreamGetCaptureInfo", "asking for the graph of a capture", stream);
    }
    // The only order that CUDA gives for the call: after the last run of the last graph.
    GANTRY_CUDA_CHECK(cuda::api().cuUserObjectCreate(&object, data, release, /*initialRefcount=*/1,
                                                     CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                      "creating a user object", stream);
    GANTRY_CUDA_CHECK(
        cuda::api().cuGraphRetainUserObject(graph, object, /*count=*/1, CU_GRAPH_USER_OBJECT_MOVE),
        "giving a user object to a captured graph", stream);
  } catch (...) {
    if (object == nullptr) {
      release(data);
    } else {
      GANTRY_CUDA_WARN(cuda::api().cuUserObjectRelease(object, /*count=*/1),
                       "releasing a user object");
    }
    throw;
  }
}

void CudaDriver::launch_graph(NativeGraph graph, NativeStream stream) {
  const cuda::ContextScope scope(stream.device);
  GANTRY_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native(stream)),
                    "launching a graph", stream);
}

void CudaDriver::destroy_graph(NativeGraph graph) noexcept {
  if (graph == nullptr) return;
  try {
    // The runtime would make a context on device 0 if none were current.
    const cuda::ContextScope scope;
    GANTRY_CUDA_WARN(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)),
                     "destroying a graph");
  } catch (const std::exception& error) {
    logging::warn(error.what());
  }
}

}  // namespace gantry
