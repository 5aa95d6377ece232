// Conditions in captures: conditional nodes, whose bodies are graphs that CUDA captures apart.
#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "device/cuda/capture_bodies.hpp"
#include "device/cuda/conditions/set_condition.cuh"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace gantry {
namespace {

using cuda::CaptureBodies;
using cuda::CaptureBody;

constexpr const char* kBeginning = "beginning a condition";
constexpr const char* kEnding = "ending the body of a condition";
constexpr int kOldestVersion = 12040;  // of a driver with conditional nodes

cudaStream_t native(NativeStream stream) { return static_cast<cudaStream_t>(stream.handle); }

// CUDA 12's form, which has no data of edges.
using AddNode = CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                             CUgraphNodeParams*);

// CUDA 12.3's form, which has the data of edges.
using GetEdges = CUresult (*)(CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, std::size_t*);

// Null if the driver has no such function.
template <class Function>
Function find(const char* name, unsigned interface) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  GANTRY_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &function, interface, cudaEnableDefault, &found),
      fmt::format("looking up {}", name));
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(function) : nullptr;
}

// Where a captured stream is: its capture, the graph, and the nodes that the next one follows.
struct CapturePlace {
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* before = nullptr;
  std::size_t count = 0;
};

CapturePlace place_of(NativeStream stream, const char* doing) {
  CapturePlace place;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  GANTRY_CUDA_CHECK(
      cuda::api().stream_get_capture_info(static_cast<CUstream>(stream.handle), &status, &place.id,
                                          &place.graph, &place.before, &place.count),
      doing, stream);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    GANTRY_CUDA_CHECK_STATUS(status == CU_STREAM_CAPTURE_STATUS_NONE
                                 ? cudaErrorIllegalState
                                 : cudaErrorStreamCaptureInvalidated,
                             "cuStreamGetCaptureInfo", doing, stream);
  }
  return place;
}

void submit_flag(const CaptureBody& body, NativeStream stream, const char* doing) {
  cuda::launch_set_condition(body.handle, body.flag, body.flag_bytes, body.stops, native(stream));
  GANTRY_CUDA_CHECK(cudaGetLastError(), doing, stream);
}

// Adds the node behind the work of `stream` and returns the graph of its body.
cudaGraph_t add_node(const CaptureBody& body, NativeStream stream, AddNode add) {
  const CapturePlace place = place_of(stream, kBeginning);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = body.handle;
  parameters.conditional.type = body.is_loop ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF;
  parameters.conditional.size = 1;
  parameters.conditional.ctx = cuda::primary_context(stream.device);
  CUgraphNode node = nullptr;
  GANTRY_CUDA_CHECK(add(&node, place.graph, place.before, place.count, &parameters), kBeginning,
                    stream);
  GANTRY_CUDA_CHECK(
      cuda::api().stream_update_capture_dependencies(static_cast<CUstream>(stream.handle), &node, 1,
                                                     CU_STREAM_SET_CAPTURE_DEPENDENCIES),
      kBeginning, stream);
  return parameters.conditional.phGraph_out[0];
}

// The nodes of `graph` that no other node follows.
std::set<CUgraphNode> leaves_of(CUgraph graph, NativeStream stream) {
  static const GetEdges kGetEdges = find<GetEdges>("cuGraphGetEdges", 12030);
  std::size_t count = 0;
  GANTRY_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count), kEnding, stream);
  std::vector<CUgraphNode> nodes(count);
  GANTRY_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count), kEnding, stream);
  GANTRY_CUDA_CHECK(kGetEdges(graph, nullptr, nullptr, nullptr, &count), kEnding, stream);
  std::vector<CUgraphNode> from(count);
  std::vector<CUgraphNode> to(count);
  std::vector<CUgraphEdgeData> data(count);
  GANTRY_CUDA_CHECK(kGetEdges(graph, from.data(), to.data(), data.data(), &count), kEnding, stream);
  std::set<CUgraphNode> leaves(nodes.begin(), nodes.end());
  for (CUgraphNode node : from) leaves.erase(node);
  return leaves;
}

// Joins the forks of a body to its stream: CUDA would end one with open forks as an invalidated
// one. True if there were any.
bool join_forks(NativeStream stream) {
  const CapturePlace place = place_of(stream, kEnding);
  std::set<CUgraphNode> open = leaves_of(place.graph, stream);
  for (std::size_t i = 0; i < place.count; ++i) open.erase(place.before[i]);
  if (open.empty()) return false;
  std::vector<CUgraphNode> nodes(open.begin(), open.end());
  GANTRY_CUDA_CHECK(cuda::api().stream_update_capture_dependencies(
                        static_cast<CUstream>(stream.handle), nodes.data(), nodes.size(),
                        CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
                    kEnding, stream);
  return true;
}

}  // namespace

bool CudaDriver::supports_conditions(int) {
  int version = 0;
  GANTRY_CUDA_CHECK(cudaDriverGetVersion(&version), "asking for the driver's version");
  return version >= kOldestVersion;
}

void CudaDriver::begin_condition(NativeStream stream, const NativeCondition& condition,
                                 NativeStream body_stream) {
  static const AddNode kAddNode = find<AddNode>("cuGraphAddNode", 12020);
  if (kAddNode == nullptr) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorNotSupported, "cuGraphAddNode", kBeginning, stream);
  }
  if (body_stream.handle == nullptr || body_stream.device != stream.device ||
      (condition.flag_bytes != 1 && condition.flag_bytes != 4)) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorInvalidValue, "begin_condition", kBeginning, stream);
  }
  const cuda::ContextScope scope(stream.device);
  const CapturePlace place = place_of(stream, kBeginning);
  if (is_capturing(body_stream)) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorIllegalState, "begin_condition", kBeginning, body_stream);
  }
  CaptureBody body{.outermost = place.id,
                   .outermost_graph = place.graph,
                   .stream = native(body_stream),
                   .is_loop = condition.kind == ConditionKind::while_,
                   .flag = condition.flag,
                   .flag_bytes = condition.flag_bytes};
  if (const auto around = CaptureBodies::instance().find(place.id)) {
    body.outermost = around->outermost;
    body.outermost_graph = around->outermost_graph;
    body.depth = around->depth + 1;
  }
  // A handle without a node is an error of the instantiation.
  try {
    GANTRY_CUDA_CHECK(cudaGraphConditionalHandleCreate(&body.handle, place.graph,
                                                       /*defaultLaunchValue=*/0, /*flags=*/0),
                      kBeginning, stream);
    submit_flag(body, stream, kBeginning);
    cudaGraph_t graph = add_node(body, stream, kAddNode);
    GANTRY_CUDA_CHECK(
        cudaStreamBeginCaptureToGraph(native(body_stream), graph, /*dependencies=*/nullptr,
                                      /*dependencyData=*/nullptr, /*numDependencies=*/0,
                                      cudaStreamCaptureModeRelaxed),
        kBeginning, body_stream);
    body.id = place_of(body_stream, kBeginning).id;
    CaptureBodies::instance().add(body);
  } catch (...) {
    CaptureBodies::instance().spoil(body.outermost);
    throw;
  }
}

void CudaDriver::stop_condition(NativeStream stream, const std::uint32_t* word) {
  CaptureBodies& bodies = CaptureBodies::instance();
  const std::optional<CaptureBody> body = bodies.find(cuda::own_capture_id(stream));
  if (!body || bodies.add_stop(body->outermost, word)) return;
  GANTRY_CUDA_CHECK_STATUS(cudaErrorNotSupported, "stop_condition",
                           "adding more than 8 words that end a loop", stream);
}

void CudaDriver::end_condition(NativeStream body_stream) {
  const cuda::ContextScope scope(body_stream.device);
  CaptureBodies& bodies = CaptureBodies::instance();
  const std::uint64_t id = cuda::own_capture_id(body_stream);
  const std::optional<CaptureBody> body = bodies.find(id);
  if (!body) {
    GANTRY_CUDA_CHECK_STATUS(cudaErrorIllegalState, "cudaStreamGetCaptureInfo", kEnding,
                             body_stream);
  }
  try {
    if (body->is_loop) submit_flag(*body, body_stream, kEnding);
    const bool had_forks = join_forks(body_stream);
    if (had_forks) bodies.spoil(body->outermost);
    cudaGraph_t graph = nullptr;
    GANTRY_CUDA_CHECK(cudaStreamEndCapture(native(body_stream), &graph), kEnding, body_stream);
    bodies.remove(id);
    if (bodies.is_spoilt(body->outermost)) {
      GANTRY_CUDA_CHECK_STATUS(
          had_forks ? cudaErrorStreamCaptureUnjoined : cudaErrorStreamCaptureInvalidated,
          "cudaStreamEndCapture", kEnding, body_stream);
    }
  } catch (...) {
    abandon_condition(body_stream);
    throw;
  }
}

void CudaDriver::abandon_condition(NativeStream body_stream) noexcept {
  try {
    const cuda::ContextScope scope(body_stream.device);
    CaptureBodies& bodies = CaptureBodies::instance();
    const std::optional<CaptureBody> body = bodies.find_by_stream(native(body_stream));
    if (!body) return;
    bodies.spoil(body->outermost);
    bodies.remove(body->id);
    // Throws if CUDA has invalidated the body, which then never ends; see refuse_in_body().
    static_cast<void>(join_forks(body_stream));
    cudaGraph_t graph = nullptr;
    static_cast<void>(cudaStreamEndCapture(native(body_stream), &graph));
    cuda::clear_error();
  } catch (const std::exception& error) {
    logging::warn(error.what());
  }
}

int CudaDriver::condition_depth(NativeStream stream) {
  const CaptureBodies& bodies = CaptureBodies::instance();
  if (bodies.is_empty()) return 0;
  const std::optional<CaptureBody> body = bodies.find(cuda::own_capture_id(stream));
  return body ? body->depth : 0;
}

}  // namespace gantry
