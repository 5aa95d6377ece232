#pragma once

#include <functional>

#include <gantry/core/export.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// Runs `function` on a thread of the driver, as work of `stream`: after the earlier work, and
/// before the later work.
///
/// The function must not call gantry or CUDA: the driver may run it while it holds locks. It may
/// signal a thread of the program. The driver runs one host function at a time, on all streams: a
/// function that waits for another one may wait for ever. If the function throws, later work of the
/// stream runs nevertheless, and the next synchronizing call of the device throws the exception.
///
/// Device/stream: the host does not block. In a capture the function becomes a part of the graph,
/// which runs it in each replay. The graph keeps the function; one run of it at a time, unless
/// several replays are under way. A body of graph_if() or graph_while() has no host functions.
/// Thread safety: any thread. The function is destroyed by a thread of the driver, or by the last
/// owner of the graph.
/// Throws: InvalidArgument for an empty function; CudaError; CaptureError in a body.
/// @code
/// std::atomic<bool> is_done{false};
/// launch_host_function(Stream::current("cuda:0"), [&] { is_done = true; });
/// synchronize("cuda:0");
/// @endcode
/// @since 0.1
GANTRY_API void launch_host_function(const Stream& stream, std::function<void()> function);

}  // namespace gantry
