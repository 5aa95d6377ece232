// Many streams that wait for one.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>

#include <gantry/streams/stream.hpp>

namespace gantry {

/// A stream's count of the times that others were made to wait for it.
///
/// Note [Signals between streams]
/// Waiting for another device's event costs the host a microsecond and a half. A stream can also
/// write a number into pinned memory, and other streams can wait until it is there, for half of
/// that each; only the write is dearer than a record. Numbers rise in stream order: each is taken
/// and written under one lock. As with events, whoever waits for a number calls the driver after
/// the write was submitted, so that no order of streams in the hardware's queues can block.
/// Captured streams take events, which become edges of the graph.
class StreamSignal {
 public:
  StreamSignal();
  StreamSignal(const StreamSignal&) = delete;
  StreamSignal& operator=(const StreamSignal&) = delete;

  /// Makes later work on `others` wait for all work submitted to `stream`, whose signal this is.
  /// False, with nothing done, if events have to do it. Throws: CudaError.
  bool release(const Stream& stream, std::span<const Stream> others);

 private:
  std::uint32_t* const word_;  ///< pinned memory, nullptr if there was none; lives as the process
  std::mutex mutex_;
  std::uint32_t last_ = 0;
};

/// Makes later work on every stream of `others` but `stream` itself wait for all work submitted to
/// `stream` so far. Throws: CudaError; then some of them may wait.
void release_streams(const Stream& stream, std::span<const Stream> others);

}  // namespace gantry
