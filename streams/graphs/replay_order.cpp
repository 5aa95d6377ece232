#include "streams/graphs/replay_order.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "device/drivers/capture_devices.hpp"
#include "streams/capture_wait.hpp"
#include "streams/graphs/condition.hpp"
#include "streams/stream_order.hpp"

namespace gantry {
namespace {

std::uint64_t capture_id_of(const Stream& stream) {
  return stream.native_handle() == nullptr ? 0 : driver().capture_id(stream.native());
}

}  // namespace

void ReplayOrder::find_streams(const Stream& stream, std::span<const Device> others) {
  streams_.clear();
  const std::uint64_t own = capture_id_of(stream);
  capture_ = own;
  for (const Device device : others) {
    const Stream other = Stream::current(device);
    const std::uint64_t capture = capture_id_of(other);
    if (capture != 0 && capture_ == 0) {
      capture_ = capture;
      streams_.clear();  // outside of the capture
    }
    if (capture == capture_) {
      streams_.push_back(other);
    } else if (capture != 0) {
      throw CaptureError(
          fmt::format("Graph::replay: expected current streams that take part in one capture, but "
                      "got {} of another capture; replay the graph in one of the captures",
                      name_of(other)),
          device.str());
    }
  }
  if (capture_ == 0) return;
  if (own == 0 && stream.native_handle() == nullptr) {
    throw CaptureError(
        fmt::format("Graph::replay: expected a current stream of {} that can join the capture of "
                    "{}, but got the default stream; make a stream of the pool current",
                    stream.device().str(), name_of(streams_.front())),
        stream.device().str());
  }
  const bool meet_in_body = !streams_.empty() && (is_in_condition(stream) ||
                                                  std::ranges::any_of(streams_, is_in_condition));
  if (meet_in_body) {
    throw CaptureError(
        fmt::format("Graph::replay: expected a graph of one device in the body of a condition, but "
                    "got one that is ordered with {}",
                    name_of(streams_.front())),
        stream.device().str());
  }
  for (const Device device : others) CaptureDevices::note(capture_, device.index);
}

void ReplayOrder::begin(const Stream& stream) const { order_behind(stream, streams_); }

void ReplayOrder::end(const Stream& stream) const { release_behind(streams_, stream); }

}  // namespace gantry
