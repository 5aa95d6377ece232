#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/core/export.hpp>
#include <gantry/device/capture_mode.hpp>
#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>

namespace gantry {

/// Name of the memory that captures share.
/// @since 0.3
enum class MemPoolId : std::uint64_t {
  none = 0  ///< memory of one capture alone
};

/// A new name for memory that several captures share.
///
/// Blocks that one capture freed serve the next captures on the same stream; GraphCapture uses one
/// stream per thread. Precondition: the graphs are replayed in the order of their captures, and
/// never at the same time. A replay overwrites memory that other graphs have freed. It never
/// overwrites tensors that are still held.
/// @since 0.3
[[nodiscard]] GANTRY_API MemPoolId graph_pool_handle();

/// True if the current stream of the current device is being captured.
/// @since 0.3
[[nodiscard]] GANTRY_API bool is_current_stream_capturing();

/// Options of a capture.
/// @since 0.3
struct CaptureOptions {
  MemPoolId pool = MemPoolId::none;        ///< memory that is shared with other captures
  std::optional<Stream> stream = {};       ///< stream to capture; none: the current one
  CaptureMode mode = CaptureMode::global;  ///< calls that other threads may make during the capture
  /// Other devices whose current streams take part: they wait for the stream of the capture at its
  /// beginning, and it waits for them at its end.
  std::vector<Device> devices = {};
};

/// Captured work, which runs any number of times at the cost of one launch.
///
/// Kernels, copies, collectives and random numbers can be captured. CaptureOptions::devices joins
/// other devices to the capture; events join single streams. A replay uses the addresses of the
/// capture: the program writes new inputs into the captured tensors and reads the captured outputs.
/// Memory of a capture is private to it (docs/explanation/captures.md). Each replay draws new
/// random numbers, as if the work were submitted eagerly.
///
/// Move-only; after a move every member of the source throws InvalidArgument. The destructor ends a
/// capture that is under way; replays that were submitted still complete.
/// Thread safety: one thread at a time.
/// @code
/// const Tensor x = ones({4}, "cuda:0");
/// Graph graph;
/// {
///   const GraphCapture capture(graph);
///   x.add_(1).mul_(2);
/// }  // nothing has run yet
/// @endcode
/// @since 0.3
class GANTRY_API Graph {
 public:
  /// An empty graph.
  Graph();

  /// Captures the work that is later submitted to `options.stream`, instead of running it. The
  /// default is the current stream. GraphCapture is the scope for it. The current streams of
  /// `options.devices` take part from here to capture_end().
  /// Throws, with the strong guarantee: InvalidArgument on a default stream, also of
  /// `options.devices`, for a device that does not exist, or unless the graph is empty; CudaError
  /// if the stream is being captured; CaptureError if one of `options.devices` has such a current
  /// stream.
  void capture_begin(const CaptureOptions& options = {});
  /// Ends the capture and makes the graph ready for replays. If this throws, the capture has ended
  /// too, and the graph is empty.
  /// Throws: InvalidArgument without capture_begin(); CaptureError if a call invalidated the
  /// capture, or a stream that took part was not joined.
  void capture_end();
  /// Submits the captured work to the current stream of device(). Replays of one graph do not
  /// overlap, whatever their streams.
  ///
  /// On a stream that is being captured the work becomes a part of that capture. A stream of
  /// another device outside of that capture is then ordered by the replays of its graph.
  /// Device/stream: asynchronous. The work runs after earlier work of the calling thread's current
  /// streams of all devices(), and before their later work.
  /// Throws: CaptureError without a successful capture. In a capture: CaptureError if the graph
  /// draws random numbers, if current streams of devices() take part in different captures, or if
  /// they would meet in the body of a condition. CudaError.
  /// @code
  /// graph.replay();
  /// graph.replay();  // x is 10
  /// @endcode
  void replay();
  /// Makes the graph empty. Replays that were submitted complete. Ends a capture that is under way.
  void reset();
  /// Makes later replays do what `other` does, without a new instantiation. This graph then shares
  /// the memory of the capture of `other`, and orders the streams of its devices.
  /// Throws, with the strong guarantee: InvalidArgument unless the graphs have the same nodes and
  /// dependencies; CaptureError if one of them is not captured.
  void update(const Graph& other);
  /// Writes nodes and dependencies to a file in the language DOT, which Graphviz draws.
  /// Throws: CaptureError without a successful capture; CudaError if the file cannot be written.
  void debug_dump(const std::string& path) const;

  /// True between a successful capture_end() and reset().
  [[nodiscard]] bool is_captured() const;
  /// The memory of the capture, for captures that share it. Throws: CaptureError if empty.
  [[nodiscard]] MemPoolId pool() const;
  /// The device of the stream where the capture began. Throws: CaptureError if empty.
  [[nodiscard]] Device device() const;
  /// The devices whose current streams a replay orders, ascending: device(), and the device of each
  /// stream that waited for an event of the capture. A stream that the program joined by CUDA's own
  /// calls is known if it is current when the capture ends, or if gantry allocated memory for it.
  /// Throws: CaptureError without a successful capture.
  [[nodiscard]] std::vector<Device> devices() const;

 private:
  friend class GraphCapture;
  struct Impl;
  struct Destroy {
    void operator()(Impl* impl) const noexcept;
  };

  gantry::detail::CheckedPtr<std::unique_ptr<Impl, Destroy>> impl_;
};

/// A scope in which work is captured into a graph.
///
/// The stream of the capture is current in the scope. By default it is a pooled stream of the
/// current device, and a thread uses the same one for each capture. A current stream of
/// `options.devices` that is a default stream, or captured already, is replaced by such a stream in
/// the scope. If an exception ends the scope, the graph is empty. If the capture fails at the end
/// of the scope, Graph::replay() throws the reason; end() throws it at once.
/// @code
/// const Tensor here = ones({4}, "cuda:0"), there = ones({4}, "cuda:1");
/// Graph graph;
/// {
///   const GraphCapture capture(graph, {.devices = {"cuda:1"}});
///   there.copy_(here);
/// }
/// @endcode
/// @since 0.3
class GANTRY_API GraphCapture {
 public:
  /// Begins the capture. Throws: as Graph::capture_begin().
  explicit GraphCapture(Graph& graph, const CaptureOptions& options = {});
  ~GraphCapture();
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  /// Ends the capture before the end of the scope; the stream stays current. Throws: as
  /// Graph::capture_end().
  void end();
  /// The stream where the capture began.
  [[nodiscard]] const Stream& stream() const noexcept { return guard_.current_stream(); }

 private:
  Graph& graph_;
  StreamGuard guard_;
  MultiStreamGuard others_;
  int exceptions_;
  bool is_open_ = true;
};

}  // namespace gantry
