#pragma once

#include <functional>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Submits the work of `body`, which runs only if `flag` is not 0 when all earlier work is
/// complete.
///
/// In a capture `body` is called once, to capture its work, and each replay reads the flag. A
/// separate stream is current inside `body`; it must not use the streams of the capture. Outside of
/// captures the host waits for the flag, and calls `body` if it is not 0.
///
/// A body may contain operations on the flag's device, replays of other graphs, and further
/// conditions. It must not draw random numbers, use other devices, or wait for an event that was
/// recorded outside.
///
/// A body may run operations of a Communicator whose ranks reach each other's memory, and kernels
/// that use a Window. All ranks capture the same condition, and their flags are equal whenever they
/// are read. If they differ, all ranks get a CollectiveMismatch, and the group is broken. A loop
/// ends when the group is broken. The group's last operation before the condition, if it is in the
/// same capture, is on the same stream.
///
/// Memory of a body belongs to the graph. Its contents are undefined after a replay in which the
/// body did not run. A graph with conditions can be neither replayed in a capture nor updated.
///
/// Shapes, DTypes: `flag` has one element of bool or i32.
/// Device/stream: the current stream of the flag's device.
/// Throws, before anything is captured: InvalidArgument, ShapeError or DTypeError for another flag;
/// NotSupported if the CUDA driver has no conditional nodes. Throws, and invalidates the capture:
/// CaptureError for work that a body must not have; exceptions of `body`.
/// @code
/// const Tensor x = ones({4}, "cuda:0");
/// const Tensor flag = x.sum().gt(3);
/// graph_if(flag, [&] { x.mul_(0); });
/// @endcode
/// @since 0.3
GANTRY_API void graph_if(const Tensor& flag, const std::function<void()>& body);

/// As graph_if, but repeats the work as long as `flag` is not 0. The work of the body writes the
/// flag in place. Outside of captures the host waits for the flag before each round.
/// @code
/// const Tensor x = ones({1}, "cuda:0");
/// const Tensor goes_on = x.lt(100);
/// graph_while(goes_on, [&] { goes_on.copy_(x.mul_(2).lt(100)); });
/// @endcode
/// @since 0.3
GANTRY_API void graph_while(const Tensor& flag, const std::function<void()>& body);

}  // namespace gantry
