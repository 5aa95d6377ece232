#include <gantry/streams/graph.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "core/assert.hpp"
#include "device/checked_device_index.hpp"
#include "device/drivers/capture_devices.hpp"
#include "streams/capture.hpp"
#include "streams/capture_wait.hpp"
#include "streams/graphs/graph_recording.hpp"
#include "streams/graphs/replay_order.hpp"
#include "streams/profiling/call_event.hpp"
#include "streams/stream_order.hpp"

namespace gantry {
namespace {

// Throws unless the stream can be captured.
void require_no_default(const Stream& stream) {
  if (stream.native_handle() != nullptr) return;
  throw InvalidArgument(
      fmt::format("Graph::capture_begin: expected a stream of the pool or of the program, but got "
                  "{}; a GraphCapture takes one of the pool",
                  name_of(stream)),
      stream.device().str());
}

// Throws unless the stream can join a capture that begins.
void require_joinable(const Stream& stream) {
  require_no_default(stream);
  if (!is_captured(stream.native())) return;
  throw CaptureError(
      fmt::format("Graph::capture_begin: expected current streams of options.devices that are not "
                  "being captured, but got {}",
                  name_of(stream)),
      stream.device().str());
}

// The devices without duplicates and without `own`.
std::vector<Device> others_of(const std::vector<Device>& devices, Device own) {
  std::vector<Device> others;
  for (const Device device : devices) {
    const Device other = Device::cuda(checked_device_index(device, "Graph::capture_begin"));
    if (other == own || std::ranges::find(others, other) != others.end()) continue;
    others.push_back(other);
  }
  return others;
}

// Notes the devices whose current streams take part in the capture of `stream`. The program may
// have joined them by calls that gantry does not see.
void note_current_streams(const Stream& stream) noexcept {
  try {
    const std::uint64_t capture = driver().capture_id(stream.native());
    for (int device = 0; device < device_count(); ++device) {
      const Stream current = Stream::current(Device::cuda(device));
      if (current.native_handle() == nullptr) continue;
      if (driver().capture_id(current.native()) == capture) CaptureDevices::note(capture, device);
    }
  } catch (...) {
    // The stream is gone; a stream that gantry made wait is known.
  }
}

// The streams that a GraphCapture on `own` makes current on the other devices.
std::vector<Stream> streams_to_join(const std::vector<Device>& devices, Device own) {
  std::vector<Stream> streams;
  for (const Device device : others_of(devices, own)) {
    const Stream current = Stream::current(device);
    const bool can_join = current.native_handle() != nullptr && !is_captured(current.native());
    streams.push_back(can_join ? current : capture_stream(device));
  }
  return streams;
}

}  // namespace

struct Graph::Impl {
  enum class State { empty, capturing, captured };

  State state = State::empty;
  std::optional<Stream> stream;  ///< where the capture began
  MemPoolId pool = MemPoolId::none;
  NativeGraph native = nullptr;
  std::shared_ptr<GraphRecording> recording;
  std::unique_ptr<CaptureDevices> devices;  ///< of the capture under way
  std::vector<Stream> joined;               ///< by capture_begin, which capture_end waits for
  std::vector<Device> others;               ///< of the captured graph, besides stream's
  ReplayOrder order;
  std::optional<Stream> last_replay;
  std::string failure;  ///< of the last capture, for replay()

  // Throws CaptureError unless the graph is captured.
  void require_captured(std::string_view member) const {
    GANTRY_ASSERT((state == State::captured) == (native != nullptr),
                  "a graph is captured without one of the driver");
    if (state == State::captured) return;
    throw CaptureError(
        fmt::format("Graph::{}: expected a captured graph, but got one {}", member,
                    state == State::capturing ? std::string("whose capture is under way")
                    : failure.empty()         ? std::string("that nothing was captured into")
                                              : fmt::format("whose capture failed: {}", failure)));
  }

  // The devices of `made` other than the device of this graph's stream.
  [[nodiscard]] std::vector<Device> others_in(const GraphRecording& made) const {
    std::vector<Device> found;
    for (const int device : made.devices()) {
      if (device != stream->native().device) found.push_back(Device::cuda(device));
    }
    return found;
  }

  // Makes the capture's stream wait for the joined ones. Returns the text of the first error.
  [[nodiscard]] std::string join() const {
    try {
      order_behind(*stream, joined);
      return {};
    } catch (const CudaError& error) {
      return error.what();
    }
  }

  void reset() noexcept {
    if (state == State::capturing) abandon_capture(*stream);
    if (recording != nullptr) GraphRecording::forget(*recording);
    if (native != nullptr && !in_bad_fork()) driver().destroy_graph(native);
    *this = Impl{};
  }
};

void Graph::Destroy::operator()(Impl* impl) const noexcept {
  try {
    impl->reset();
  } catch (...) {
    // The platform is shutting down; it takes the graph with it.
  }
  delete impl;
}

MemPoolId graph_pool_handle() {
  static std::atomic<std::uint64_t> next{1};
  return MemPoolId{next.fetch_add(1, std::memory_order_relaxed)};
}

bool is_current_stream_capturing() {
  return is_available() && is_captured(Stream::current().native());
}

Graph::Graph() : impl_(std::unique_ptr<Impl, Destroy>(new Impl)) {}

void Graph::capture_begin(const CaptureOptions& options) {
  Impl& graph = impl_.of("Graph::capture_begin");
  if (graph.state != Impl::State::empty) {
    throw InvalidArgument(fmt::format(
        "Graph::capture_begin: expected an empty graph, but got one {}; call reset()",
        graph.state == Impl::State::captured ? "that is captured" : "whose capture is under way"));
  }
  const Stream stream = options.stream.value_or(Stream::current());
  require_no_default(stream);
  std::vector<Stream> joined;
  for (const Device device : others_of(options.devices, stream.device())) {
    joined.push_back(Stream::current(device));
    require_joinable(joined.back());
  }
  const MemPoolId pool = options.pool == MemPoolId::none ? graph_pool_handle() : options.pool;
  auto recording = std::make_shared<GraphRecording>();
  std::unique_ptr<CaptureDevices> devices;
  begin_capture(stream, options.mode, pool);
  try {
    const std::uint64_t capture = driver().capture_id(stream.native());
    devices = std::make_unique<CaptureDevices>(capture, stream.native().device);
    GraphRecording::announce(capture, recording);
    release_behind(joined, stream);
  } catch (...) {
    GraphRecording::forget(*recording);
    abandon_capture(stream);
    throw;
  }
  graph.state = Impl::State::capturing;
  graph.stream = stream;
  graph.pool = pool;
  graph.recording = std::move(recording);
  graph.devices = std::move(devices);
  graph.joined = std::move(joined);
  graph.failure.clear();
}

void Graph::capture_end() {
  Impl& graph = impl_.of("Graph::capture_end");
  if (graph.state != Impl::State::capturing) {
    throw InvalidArgument(
        "Graph::capture_end: expected a capture under way, but got a graph without one");
  }
  GANTRY_ASSERT(graph.recording != nullptr && graph.devices != nullptr && graph.native == nullptr,
                "a capture under way has no recording, or a graph already");
  std::string failure = graph.join();
  note_current_streams(*graph.stream);
  GraphRecording::forget(*graph.recording);
  graph.recording->set_devices(graph.devices->all());
  graph.others = graph.others_in(*graph.recording);
  try {
    if (failure.empty()) graph.native = driver().end_capture(graph.stream->native());
  } catch (const CudaError& error) {
    failure = error.what();
  }
  if (!failure.empty()) {
    const std::string device = graph.stream->device().str();
    abandon_capture(*graph.stream);
    graph = Impl{};
    graph.failure = failure;
    throw CaptureError(
        fmt::format("Graph::capture_end: failed to capture a graph: {}; the first error of the "
                    "capture names the call that is not allowed in one",
                    failure),
        device);
  }
  graph.state = Impl::State::captured;
  graph.devices.reset();
  graph.joined.clear();
}

void Graph::replay() {
  Impl& graph = impl_.of("Graph::replay");
  graph.require_captured("replay");
  const trace::CallEvent event("replay");
  const Stream stream = Stream::current(graph.stream->device());
  const bool has_others = !graph.others.empty();
  if (has_others) graph.order.find_streams(stream, graph.others);
  const bool draws = !graph.recording->is_empty();
  if (draws && (has_others ? graph.order.capture() != 0 : gantry::is_captured(stream.native()))) {
    throw CaptureError(
        fmt::format("Graph::replay: expected a stream that is not being captured, since the graph "
                    "draws random numbers, but got {}",
                    name_of(stream)),
        stream.device().str());
  }
  if (has_others) graph.order.begin(stream);
  if (draws) {
    // The last replay may still read the memory that prepare() writes.
    if (graph.last_replay && *graph.last_replay != stream) stream.wait(*graph.last_replay);
    graph.recording->prepare(stream);
  }
  driver().launch_graph(graph.native, stream.native());
  graph.last_replay = stream;
  if (has_others) graph.order.end(stream);
}

void Graph::reset() { impl_.of("Graph::reset").reset(); }

void Graph::update(const Graph& other) {
  Impl& graph = impl_.of("Graph::update");
  const Impl& source = other.impl_.of("Graph::update");
  graph.require_captured("update");
  source.require_captured("update");
  if (&graph == &source) return;
  std::vector<Device> others = graph.others_in(*source.recording);
  if (!driver().update_graph(graph.native, source.native)) {
    throw InvalidArgument(
        "Graph::update: expected graphs with the same nodes and dependencies, but got different "
        "ones; use the other graph itself");
  }
  graph.recording = source.recording;
  graph.others = std::move(others);
  graph.pool = source.pool;
}

void Graph::debug_dump(const std::string& path) const {
  const Impl& graph = impl_.of("Graph::debug_dump");
  graph.require_captured("debug_dump");
  driver().dump_graph(graph.native, path);
}

bool Graph::is_captured() const {
  return impl_.of("Graph::is_captured").state == Impl::State::captured;
}

MemPoolId Graph::pool() const {
  const Impl& graph = impl_.of("Graph::pool");
  if (graph.state == Impl::State::empty) graph.require_captured("pool");
  return graph.pool;
}

Device Graph::device() const {
  const Impl& graph = impl_.of("Graph::device");
  if (graph.state == Impl::State::empty) graph.require_captured("device");
  return graph.stream->device();
}

std::vector<Device> Graph::devices() const {
  const Impl& graph = impl_.of("Graph::devices");
  graph.require_captured("devices");
  std::vector<Device> all = graph.others;
  all.push_back(graph.stream->device());
  std::ranges::sort(all, {}, &Device::index);
  return all;
}

GraphCapture::GraphCapture(Graph& graph, const CaptureOptions& options)
    : graph_(graph),
      guard_(options.stream ? *options.stream : capture_stream(current_device())),
      others_(streams_to_join(options.devices, guard_.current_stream().device())),
      exceptions_(std::uncaught_exceptions()) {
  CaptureOptions taken = options;
  taken.stream = guard_.current_stream();
  graph_.capture_begin(taken);
}

GraphCapture::~GraphCapture() {
  if (!is_open_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      graph_.reset();
    } else {
      graph_.capture_end();
    }
  } catch (const std::exception& error) {
    logging::warn(error.what());
  }
}

void GraphCapture::end() {
  if (!is_open_) {
    throw InvalidArgument("GraphCapture::end: expected a capture under way, but got an ended one");
  }
  is_open_ = false;
  graph_.capture_end();
}

}  // namespace gantry
