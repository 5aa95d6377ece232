#pragma once

#include <functional>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Submits the work of `body` to run only if `flag` is not 0 when the work before it is done.
///
/// In a capture the flag decides at every replay. `body` is called once, to capture its work; its
/// streams are not those of the capture, and a stream of its own is current inside. Outside of
/// captures the host waits for the flag, and calls `body` or not.
///
/// A body has operations on the flag's device, replays of other graphs, and further conditions. It
/// must not draw random numbers, run collectives, use other devices, or wait for an event that was
/// recorded outside. Memory of a body belongs to the graph; it is undefined after a replay in which
/// the body did not run. A graph with conditions cannot be replayed in a capture, nor updated.
///
/// Shapes, DTypes: `flag` has one element of bool or i32.
/// Device/stream: the current stream of the flag's device.
/// Throws: InvalidArgument, ShapeError, DTypeError for another flag, before anything is captured.
/// NotSupported where CUDA's driver has no conditional nodes. CaptureError for work that a body
/// must not have; what `body` throws. Both spoil the capture.
GANTRY_API void graph_if(const Tensor& flag, const std::function<void()>& body);

/// As graph_if, but runs the work again and again as long as `flag` is not 0. The work of the body
/// changes the flag, in place. Outside of captures the host waits for the flag before each round.
GANTRY_API void graph_while(const Tensor& flag, const std::function<void()>& body);

}  // namespace gantry
