// Calls that were captured into a graph.
#pragma once

#include <utility>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::bench {

/// A graph of what a function submitted to a stream.
class CapturedCalls {
 public:
  CapturedCalls() = default;
  /// Captures what `submit()` submits to `stream`. Throws: what `submit` throws; CudaError.
  template <class Submit>
  CapturedCalls(const Stream& stream, Submit submit) {
    driver().begin_capture(stream.native(), CaptureMode::thread_local_);
    try {
      submit();
    } catch (...) {
      abandon(stream);
      throw;
    }
    graph_ = driver().end_capture(stream.native());
  }
  ~CapturedCalls() {
    if (graph_ != nullptr) driver().destroy_graph(graph_);
  }
  CapturedCalls(CapturedCalls&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  CapturedCalls& operator=(CapturedCalls&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  [[nodiscard]] bool defined() const { return graph_ != nullptr; }
  void launch(const Stream& stream) const { driver().launch_graph(graph_, stream.native()); }

 private:
  // Ends a capture whose graph nobody wants; it may have become invalid.
  static void abandon(const Stream& stream) noexcept {
    try {
      driver().destroy_graph(driver().end_capture(stream.native()));
    } catch (const std::exception&) {
      // The first error is the one that counts.
    }
  }

  NativeGraph graph_ = nullptr;
};

}  // namespace gantry::bench
