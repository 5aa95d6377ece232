// The order of a graph's replay with the current streams of its devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Note [Replays over several devices]
// A launch follows the work of its own stream, and no other. So the stream of the launch first
// waits for the current streams of the graph's other devices, and they wait for it afterwards, as
// for a copy between devices. Where one of these streams is being captured, the replay becomes a
// part of that capture: the stream of the launch joins it by its wait. A current stream outside of
// that capture is not ordered now, since nothing runs now. Its device is noted instead, so that the
// replays of the outer graph order it.

/// The waits around the replays of one graph over several devices. Allocates at the first replay.
class ReplayOrder {
 public:
  /// Finds the streams to order with `stream`, where the graph is launched next: the current ones
  /// of `others`, the graph's other devices.
  /// Throws CaptureError where they cannot be ordered, and CudaError.
  void find_streams(const Stream& stream, std::span<const Device> others);
  /// The driver's number of the capture that the replay becomes part of; 0: none.
  [[nodiscard]] std::uint64_t capture() const { return capture_; }
  /// Makes `stream` wait for the others. Throws: CudaError.
  void begin(const Stream& stream) const;
  /// Makes the others wait for `stream`. Throws: CudaError.
  void end(const Stream& stream) const;

 private:
  std::uint64_t capture_ = 0;
  std::vector<Stream> streams_;
};

}  // namespace gantry
