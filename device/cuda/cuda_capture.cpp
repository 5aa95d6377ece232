#include <exception>
#include <memory>
#include <ranges>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/files/output_file.hpp"
#include "device/cuda/capture_bodies.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/drivers/capture_devices.hpp"

namespace gantry {

namespace {

using cuda::CaptureBodies;
using cuda::CaptureBody;

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
using GraphPtr = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;

struct GraphExecDeleter {
  void operator()(cudaGraphExec_t graph) const noexcept {
    GANTRY_CUDA_WARN(cudaGraphExecDestroy(graph), "destroying a graph");
  }
};

// A NativeGraph. The nodes stay beside their instance, for updates of other graphs and for dumps.
struct CudaGraph {
  GraphPtr nodes;
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, GraphExecDeleter> executable;
  bool has_conditions = false;
};

CudaGraph& graph_of(NativeGraph graph) { return *static_cast<CudaGraph*>(graph); }

// Makes the nodes of `graph` a node of the graph that `stream` is being captured into: CUDA
// captures no launch of a graph.
void capture_launch(cudaGraph_t graph, NativeStream stream) {
  constexpr const char* kDoing = "capturing a graph";
  const auto handle = static_cast<CUstream>(stream.handle);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph outer = nullptr;
  const CUgraphNode* before = nullptr;
  std::size_t count = 0;
  GANTRY_CUDA_CHECK(
      cuda::api().stream_get_capture_info(handle, &status, nullptr, &outer, &before, &count),
      kDoing, stream);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorStreamCaptureInvalidated, "cuStreamGetCaptureInfo", kDoing,
                             stream);
  }
  cudaGraphNode_t node = nullptr;
  GANTRY_CUDA_CHECK(cudaGraphAddChildGraphNode(&node, outer, before, count, graph), kDoing, stream);
  GANTRY_CUDA_CHECK(cuda::api().stream_update_capture_dependencies(
                        handle, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                    kDoing, stream);
}

}  // namespace

void CudaDriver::begin_capture(NativeStream stream, CaptureMode mode) {
  const cuda::ContextScope scope(stream.device);
  static_cast<void>(stream_identity(stream));  // cannot be asked in the capture
  OpenCaptures::add(stream.handle);
  const cudaError_t status = cudaStreamBeginCapture(native(stream), native(mode));
  if (status != cudaSuccess && !is_capturing(stream)) OpenCaptures::remove(stream.handle);
  GANTRY_CUDA_CHECK_STATUS(status, "cudaStreamBeginCapture", "beginning a capture", stream);
  CaptureBodies::instance().began(native(stream), cuda::own_capture_id(stream));
}

NativeGraph CudaDriver::end_capture(NativeStream stream) {
  constexpr const char* kDoing = "ending the capture";
  const cuda::ContextScope scope(stream.device);
  CaptureBodies& bodies = CaptureBodies::instance();
  const std::uint64_t id = cuda::own_capture_id(stream);
  if (bodies.find(id)) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorStreamCaptureUnmatched, "end_capture", kDoing, stream);
  }
  // The innermost first: a graph goes with the one around it.
  for (const CaptureBody& body : std::views::reverse(bodies.open_in(id))) {
    abandon_condition({stream.device, body.stream});
  }
  const CaptureBodies::Ended ended = bodies.forget(id);
  bodies.ended(native(stream));
  cudaGraph_t captured = nullptr;
  const cudaError_t status = cudaStreamEndCapture(native(stream), &captured);
  // Only the thread of the capture can end it.
  if (status != cudaErrorStreamCaptureWrongThread) OpenCaptures::remove(stream.handle);
  GANTRY_CUDA_CHECK_STATUS(status, "cudaStreamEndCapture", kDoing, stream);
  auto graph = std::make_unique<CudaGraph>();
  graph->nodes.reset(captured);
  graph->has_conditions = ended.has_conditions;
  if (ended.is_spoilt) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorStreamCaptureInvalidated, "end_capture", kDoing, stream);
  }
  const cuda::RelaxedCaptureScope relaxed;  // captures of other threads go on
  cudaGraphExec_t executable = nullptr;
  GANTRY_CUDA_CHECK(cudaGraphInstantiate(&executable, captured, 0),
                    "instantiating the captured graph", stream);
  graph->executable.reset(executable);
  return graph.release();
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
  const std::uint64_t id = cuda::own_capture_id(stream);
  const auto body = CaptureBodies::instance().find(id);
  return body ? body->outermost : id;
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
    // The graph of a body is a part of another one.
    if (const auto body = CaptureBodies::instance().find(id)) graph = body->outermost_graph;
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
  if (is_capturing(stream)) {
    if (graph_of(graph).has_conditions) {
      GANTRY_CUDA_CHECK_STATUS(cudaErrorNotSupported, "cudaGraphAddChildGraphNode",
                               "capturing a graph with conditions", stream);
    }
    capture_launch(graph_of(graph).nodes.get(), stream);
    return;
  }
  const cuda::RelaxedCaptureScope relaxed;  // the first launch uploads the graph
  GANTRY_CUDA_CHECK(cudaGraphLaunch(graph_of(graph).executable.get(), native(stream)),
                    "launching a graph", stream);
}

bool CudaDriver::update_graph(NativeGraph graph, NativeGraph source) {
  if (graph_of(graph).has_conditions || graph_of(source).has_conditions) return false;
  const cuda::ContextScope scope;
  const cuda::RelaxedCaptureScope relaxed;
  // A clone keeps what the source's capture retained.
  cudaGraph_t cloned = nullptr;
  GANTRY_CUDA_CHECK(cudaGraphClone(&cloned, graph_of(source).nodes.get()), "copying a graph");
  GraphPtr nodes(cloned);
  cudaGraphExecUpdateResultInfo info{};
  const cudaError_t status = cudaGraphExecUpdate(graph_of(graph).executable.get(), cloned, &info);
  if (status == cudaErrorGraphExecUpdateFailure) {
    (void)cudaGetLastError();
    return false;
  }
  GANTRY_CUDA_CHECK_STATUS(status, "cudaGraphExecUpdate", "updating a graph");
  graph_of(graph).nodes = std::move(nodes);
  return true;
}

void CudaDriver::dump_graph(NativeGraph graph, const std::string& path) {
  const cuda::ContextScope scope;
  // By its name CUDA would follow a link of another user: Note [Files in folders of other users].
  const OutputFile opened = open_output(path);
  if (!opened.ok()) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorOperatingSystem, "cudaGraphDebugDotPrint",
                             "writing a graph to " + path + " (" + opened.problem + ")");
  }
  const std::string file = "/proc/self/fd/" + std::to_string(opened.file.get());
  GANTRY_CUDA_CHECK(cudaGraphDebugDotPrint(graph_of(graph).nodes.get(), file.c_str(),
                                           cudaGraphDebugDotFlagsVerbose),
                    "writing a graph to " + path);
}

void CudaDriver::destroy_graph(NativeGraph graph) noexcept {
  if (graph == nullptr) return;
  try {
    // The runtime would make a context on device 0 if none were current.
    const cuda::ContextScope scope;
    const cuda::RelaxedCaptureScope relaxed;
    delete static_cast<CudaGraph*>(graph);
  } catch (const std::exception& error) {
    logging::warn(error.what());
  }
}

}  // namespace gantry
