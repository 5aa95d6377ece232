// Captures and graphs.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/handles.hpp"
#include "compat/cudart/next.hpp"
#include "compat/cudart/streams.hpp"

namespace gantry::cudart_api {

namespace {

// A captured graph, which the driver can launch as it is. cudaGraph_t and each cudaGraphExec_t made
// of it share it. Launches of one graph do not overlap, nor do launches of its instances.
class CapturedGraph {
 public:
  explicit CapturedGraph(NativeGraph native) : native_(native) {}
  ~CapturedGraph() { driver().destroy_graph(native_); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  [[nodiscard]] NativeGraph native() const { return native_; }

 private:
  const NativeGraph native_;
};
using SharedGraph = std::shared_ptr<const CapturedGraph>;

Handles<SharedGraph>& graphs() {
  static auto* const all = new Handles<SharedGraph>;
  return *all;
}

Handles<SharedGraph>& instances() {
  static auto* const all = new Handles<SharedGraph>;
  return *all;
}

// A handle that no graph or instance has had.
template <class Handle>
Handle next_handle() {
  constexpr std::uintptr_t kFirst = 0x1000;
  constexpr std::uintptr_t kStep = 0x10;
  static std::atomic<std::uintptr_t> next{kFirst};
  return reinterpret_cast<Handle>(next.fetch_add(kStep, std::memory_order_relaxed));
}

SharedGraph graph_of(cudaGraph_t graph) {
  auto found = graphs().find(graph);
  expect(found.has_value(), cudaErrorInvalidValue, "there is no such graph");
  return *std::move(found);
}

SharedGraph instance_of(cudaGraphExec_t instance) {
  auto found = instances().find(instance);
  expect(found.has_value(), cudaErrorInvalidValue, "there is no such instance of a graph");
  return *std::move(found);
}

CaptureMode mode_of(cudaStreamCaptureMode mode) {
  switch (mode) {
    case cudaStreamCaptureModeGlobal:
      return CaptureMode::global;
    case cudaStreamCaptureModeThreadLocal:
      return CaptureMode::thread_local_;
    case cudaStreamCaptureModeRelaxed:
      return CaptureMode::relaxed;
  }
  throw Refusal(cudaErrorInvalidValue, "expected a cudaStreamCaptureMode");
}

void begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  driver().begin_capture(native_stream(stream), mode_of(mode));
}

void end_capture(cudaStream_t stream, cudaGraph_t* place) {
  expect_place(place);
  *place = nullptr;
  auto made = std::make_shared<const CapturedGraph>(driver().end_capture(native_stream(stream)));
  *place = next_handle<cudaGraph_t>();
  graphs().add(*place, std::move(made));
}

cudaStreamCaptureStatus status_of(NativeStream stream) {
  return driver().is_capturing(stream) ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusNone;
}

void is_capturing(cudaStream_t stream, cudaStreamCaptureStatus* place) {
  expect_place(place);
  *place = status_of(native_stream(stream));
}

void capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                  cudaGraph_t* graph, const cudaGraphNode_t** nodes,
                  const cudaGraphEdgeData** edges, std::size_t* count) {
  expect_place(status);
  expect(graph == nullptr && nodes == nullptr && edges == nullptr && count == nullptr,
         cudaErrorNotSupported, "a simulated capture does not show its nodes");
  const NativeStream native = native_stream(stream);
  *status = status_of(native);
  if (id != nullptr) *id = driver().capture_id(native);
}

// The driver allows in every mode what relaxed captures allow.
void exchange_mode(cudaStreamCaptureMode* mode) {
  expect_place(mode);
  (void)mode_of(*mode);
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(current, *mode);
}

void instantiate(cudaGraphExec_t* place, cudaGraph_t graph, unsigned long long flags) {
  expect_place(place);
  constexpr unsigned long long kDevice = cudaGraphInstantiateFlagDeviceLaunch;
  expect((flags & kDevice) == 0, cudaErrorNotSupported, "there are no kernels to launch a graph");
  SharedGraph shared = graph_of(graph);
  *place = next_handle<cudaGraphExec_t>();
  instances().add(*place, std::move(shared));
}

void update(cudaGraphExec_t instance, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* result) {
  expect_place(result);
  (void)instance_of(instance);
  instances().add(instance, graph_of(graph));
  *result = {.result = cudaGraphExecUpdateSuccess, .errorNode = nullptr, .errorFromNode = nullptr};
}

void upload(cudaGraphExec_t instance, cudaStream_t stream) {
  (void)instance_of(instance);
  (void)native_stream(stream);
}

void launch(cudaGraphExec_t instance, cudaStream_t stream) {
  const SharedGraph graph = instance_of(instance);
  submit(stream, [&](NativeStream native) { driver().launch_graph(graph->native(), native); });
}

void destroy(cudaGraph_t graph) {
  expect(graphs().take(graph).has_value(), cudaErrorInvalidValue, "there is no such graph");
}

void destroy_instance(cudaGraphExec_t instance) {
  expect(instances().take(instance).has_value(), cudaErrorInvalidValue,
         "there is no such instance of a graph");
}

}  // namespace

GANTRY_CUDART_STREAM_CALL(cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode),
                          (stream, mode), begin_capture)
GANTRY_CUDART_STREAM_CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* place),
                          (stream, place), end_capture)
GANTRY_CUDART_STREAM_CALL(cudaStreamIsCapturing,
                          (cudaStream_t stream, cudaStreamCaptureStatus* place), (stream, place),
                          is_capturing)
GANTRY_CUDART_STREAM_CALL(cudaStreamGetCaptureInfo,
                          (cudaStream_t stream, cudaStreamCaptureStatus* status,
                           unsigned long long* id, cudaGraph_t* graph,
                           const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                           std::size_t* count),
                          (stream, status, id, graph, nodes, edges, count), capture_info)
GANTRY_CUDART_CALL(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode), (mode),
                   exchange_mode)
GANTRY_CUDART_CALL(cudaGraphInstantiate,
                   (cudaGraphExec_t * place, cudaGraph_t graph, unsigned long long flags),
                   (place, graph, flags), instantiate)
GANTRY_CUDART_CALL(cudaGraphInstantiateWithFlags,
                   (cudaGraphExec_t * place, cudaGraph_t graph, unsigned long long flags),
                   (place, graph, flags), instantiate)
GANTRY_CUDART_CALL(cudaGraphExecUpdate,
                   (cudaGraphExec_t instance, cudaGraph_t graph,
                    cudaGraphExecUpdateResultInfo* result),
                   (instance, graph, result), update)
GANTRY_CUDART_STREAM_CALL(cudaGraphUpload, (cudaGraphExec_t instance, cudaStream_t stream),
                          (instance, stream), upload)
GANTRY_CUDART_STREAM_CALL(cudaGraphLaunch, (cudaGraphExec_t instance, cudaStream_t stream),
                          (instance, stream), launch)
GANTRY_CUDART_CALL(cudaGraphDestroy, (cudaGraph_t graph), (graph), destroy)
GANTRY_CUDART_CALL(cudaGraphExecDestroy, (cudaGraphExec_t instance), (instance), destroy_instance)

}  // namespace gantry::cudart_api
