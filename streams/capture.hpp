// Captures of streams into graphs, and the lifetime of what was captured.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

class StreamClock;

// Note [Captured addresses]
// A graph uses the addresses of its capture whenever it runs. Memory of a capture must not be
// reused while any graph made from it can run. Only the driver knows when that ends: the program
// may own the graph, copy it, instantiate it or abandon the capture. Every Capture is therefore
// retained by the captured graph itself (Driver::retain_by_capture), and one atomic load tells
// whether the graph still exists. begin_capture announces captures of gantry. Captures by CUDA's
// own calls are found when a stream requests memory. Both kinds are equal from then on. Layers
// above keep a Capture beside everything that belongs to it.

/// Captures that share their memory, and the graphs that came of them: most often one.
///
/// Thread safety: every member may be called from any thread.
class Capture {
 public:
  Capture() = default;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// False once every capture failed, or its graph and all copies are destroyed and have run: then
  /// nothing uses the captured addresses any more.
  [[nodiscard]] bool is_needed() const { return graphs_.load(std::memory_order_acquire) != 0; }

 private:
  friend class CaptureRegistry;

  std::atomic<std::int64_t> graphs_{0};  ///< captures under way, and graphs that exist
};

/// The capture that `stream` takes part in; nullptr if there is none, or a spoilt one.
/// Throws: CudaError.
[[nodiscard]] std::shared_ptr<Capture> capture_of(const Stream& stream);
[[nodiscard]] std::shared_ptr<Capture> capture_of(const NativeStream& stream);
/// As capture_of, for a stream that lives. Asks the driver only if gantry saw the stream captured;
/// a driver that fails is asked again next time.
[[nodiscard]] std::shared_ptr<Capture> known_capture_of(const StreamClock& clock) noexcept;

/// True if `stream` is being captured; costs one call of the driver, and none for the default
/// stream, which never is. Throws: CudaError.
[[nodiscard]] inline bool is_captured(const NativeStream& stream) {
  return stream.handle != nullptr && driver().is_capturing(stream);
}

/// Makes begin_capture() call `function` first: in a capture, less can be found out about other
/// streams.
void call_before_captures(void (*function)() noexcept) noexcept;

/// Driver::begin_capture, with a capture that gantry knows from its beginning. The driver's
/// end_capture ends it. Captures with the same `pool`, unless it is none, are one Capture.
/// Throws, with the strong guarantee: CudaError.
std::shared_ptr<Capture> begin_capture(const Stream& stream, CaptureMode mode,
                                       MemPoolId pool = MemPoolId::none);

/// The stream of this thread's captures on `device`: always the same one, so that captures that
/// share memory find each other's freed blocks. Another one of the pool while it is being captured.
[[nodiscard]] Stream capture_stream(Device device);
/// Ends the capture that began on `stream`, without a graph.
void abandon_capture(const Stream& stream) noexcept;

}  // namespace gantry
