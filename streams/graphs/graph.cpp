#include <gantry/streams/graph.hpp>

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "streams/graphs/capture.hpp"
#include "streams/graphs/graph_recording.hpp"

namespace gantry {
namespace {

std::string name(const Stream& stream) {
  std::ostringstream text;
  text << stream;
  return text.str();
}

}  // namespace

struct Graph::Impl {
  enum class State { empty, capturing, captured };

  State state = State::empty;
  std::optional<Stream> stream;  ///< where the capture began
  MemPoolId pool = MemPoolId::none;
  NativeGraph native = nullptr;
  std::shared_ptr<GraphRecording> recording;
  std::optional<Stream> last_replay;
  std::string failure;  ///< of the last capture, for replay()

  // Throws CaptureError unless the graph is captured.
  void require_captured(std::string_view member) const {
    if (state == State::captured) return;
    throw CaptureError(
        fmt::format("Graph::{}: expected a captured graph, but got one {}", member,
                    state == State::capturing ? std::string("whose capture is under way")
                    : failure.empty()         ? std::string("that nothing was captured into")
                                              : fmt::format("whose capture failed: {}", failure)));
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
  if (stream.native_handle() == nullptr) {
    throw InvalidArgument(
        fmt::format("Graph::capture_begin: expected a stream of the pool or of the program, but "
                    "got {}; a GraphCapture takes one of the pool",
                    name(stream)),
        stream.device().str());
  }
  const MemPoolId pool = options.pool == MemPoolId::none ? graph_pool_handle() : options.pool;
  auto recording = std::make_shared<GraphRecording>();
  begin_capture(stream, options.mode, pool);
  try {
    GraphRecording::announce(driver().capture_id(stream.native()), recording);
  } catch (...) {
    abandon_capture(stream);
    throw;
  }
  graph.state = Impl::State::capturing;
  graph.stream = stream;
  graph.pool = pool;
  graph.recording = std::move(recording);
  graph.failure.clear();
}

void Graph::capture_end() {
  Impl& graph = impl_.of("Graph::capture_end");
  if (graph.state != Impl::State::capturing) {
    throw InvalidArgument(
        "Graph::capture_end: expected a capture under way, but got a graph without one");
  }
  GraphRecording::forget(*graph.recording);
  try {
    graph.native = driver().end_capture(graph.stream->native());
    graph.state = Impl::State::captured;
  } catch (const CudaError& error) {
    const std::string device = graph.stream->device().str();
    abandon_capture(*graph.stream);
    graph = Impl{};
    graph.failure = error.what();
    throw CaptureError(
        fmt::format("Graph::capture_end: failed to capture a graph: {}; the first error of the "
                    "capture names the call that is not allowed in one",
                    error.what()),
        device);
  }
}

void Graph::replay() {
  Impl& graph = impl_.of("Graph::replay");
  graph.require_captured("replay");
  const Stream stream = Stream::current(graph.stream->device());
  if (!graph.recording->is_empty()) {
    if (gantry::is_captured(stream.native())) {
      throw CaptureError(
          fmt::format("Graph::replay: expected a stream that is not being captured, since the "
                      "graph draws random numbers, but got {}",
                      name(stream)),
          stream.device().str());
    }
    // What prepare() writes, the last replay may still read.
    if (graph.last_replay && *graph.last_replay != stream) stream.wait(*graph.last_replay);
    graph.recording->prepare(stream);
  }
  driver().launch_graph(graph.native, stream.native());
  graph.last_replay = stream;
}

void Graph::reset() { impl_.of("Graph::reset").reset(); }

void Graph::update(const Graph& other) {
  Impl& graph = impl_.of("Graph::update");
  const Impl& source = other.impl_.of("Graph::update");
  graph.require_captured("update");
  source.require_captured("update");
  if (&graph == &source) return;
  if (!driver().update_graph(graph.native, source.native)) {
    throw InvalidArgument(
        "Graph::update: expected graphs with the same nodes and dependencies, but got different "
        "ones; use the other graph itself");
  }
  graph.recording = source.recording;
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

GraphCapture::GraphCapture(Graph& graph, const CaptureOptions& options)
    : graph_(graph),
      guard_(options.stream ? *options.stream : capture_stream(current_device())),
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
