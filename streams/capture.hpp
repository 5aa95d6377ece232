// Captures of streams into graphs, and how long somebody may still run what was captured.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

class StreamClock;

// Note [Captured addresses]
// A graph uses the addresses of its capture whenever it runs. So what belongs to a capture may
// serve nobody else until nothing can run the graph any more, and only the driver knows when that
// is: the program may own the graph, copy it, instantiate it or give the capture up. Therefore
// every Capture is retained by the captured graph itself (Driver::retain_by_capture), and one look
// at an atomic tells whether the graph is still needed. Captures of gantry announce themselves
// (begin_capture); those that the program begins with CUDA's own calls are found when a stream asks
// for memory. Both are the same from then on. Layers above keep a Capture with what belongs to it;
// a class for graphs would keep one, too.

/// One capture, and the graph that came of it.
///
/// Thread safety: every member may be called from any thread.
class Capture {
 public:
  explicit Capture(std::uint64_t id) : id_(id) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Driver::capture_id of its streams while it is under way.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// False once the capture failed, or once its graph and all copies are destroyed and have run:
  /// then nothing uses the captured addresses any more.
  [[nodiscard]] bool is_needed() const { return needed_.load(std::memory_order_acquire); }

 private:
  friend class CaptureRegistry;

  const std::uint64_t id_;
  std::atomic<bool> needed_{true};
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

/// Driver::begin_capture, with a capture that gantry knows from its beginning. The driver's
/// end_capture ends it. Throws: CudaError.
std::shared_ptr<Capture> begin_capture(const Stream& stream, CaptureMode mode);

}  // namespace gantry
