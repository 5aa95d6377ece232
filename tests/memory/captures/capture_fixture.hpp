// Captures for tests of memory: what a graph uses, and when nothing can run it any more.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/streams/stream.hpp>

#include "streams/capture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::testing {

/// How a capture begins: by gantry's own function, or by calls of which gantry is not told.
enum class Begun : std::uint8_t { by_gantry, by_others };

/// A capture that begins with the object, and the graph that comes of it, which ends with it.
class CapturedGraph {
 public:
  explicit CapturedGraph(const Stream& origin, Begun begun = Begun::by_others,
                         CaptureMode mode = CaptureMode::relaxed)
      : origin_(origin) {
    if (begun == Begun::by_gantry) {
      begin_capture(origin, mode);
    } else {
      driver().begin_capture(origin.native(), mode);
    }
  }
  /// Ends a capture that a failed test left open: it would disturb the next test.
  ~CapturedGraph() {
    if (!is_over_) abandon_capture(origin_);
    if (graph_ != nullptr) driver().destroy_graph(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// Makes `stream` take part. To be joined again before the end.
  void fork(const Stream& stream) {
    stream.wait(origin_);
    forks_.push_back(stream);
  }
  void end() {
    find();
    for (const Stream& fork : forks_) origin_.wait(fork);
    is_over_ = true;
    graph_ = driver().end_capture(origin_.native());
  }
  /// Ends the capture with an error.
  void spoil() {
    find();
    EXPECT_ANY_THROW(driver().synchronize_stream(origin_.native()));
    is_over_ = true;
    EXPECT_ANY_THROW(static_cast<void>(driver().end_capture(origin_.native())));
  }
  void replay(const Stream& stream) const { driver().launch_graph(graph_, stream.native()); }
  [[nodiscard]] NativeGraph native() const { return graph_; }
  /// Destroys the graph; it may still run.
  void destroy() { driver().destroy_graph(std::exchange(graph_, nullptr)); }
  /// True when gantry has heard that nothing can run the graph. The driver may tell a moment after
  /// the last run.
  [[nodiscard]] bool wait_until_gone() const {
    return eventually([&] { return !capture_->is_needed(); });
  }
  /// Both, one after the other.
  void destroy_and_wait() {
    destroy();
    EXPECT_TRUE(wait_until_gone());
  }
  [[nodiscard]] bool is_needed() const { return capture_->is_needed(); }

 private:
  // Only now, so that gantry hears of the capture as late as in a program.
  void find() { capture_ = capture_of(origin_); }

  const Stream origin_;
  std::vector<Stream> forks_;
  NativeGraph graph_ = nullptr;
  bool is_over_ = false;
  std::shared_ptr<Capture> capture_;
};

inline void fill(const memory::Buffer& buffer, int value, const Stream& stream) {
  driver().fill(buffer.data(), static_cast<std::uint8_t>(value), buffer.bytes(), stream.native());
}

inline std::vector<std::uint8_t> read(const memory::Buffer& buffer, const Stream& stream) {
  std::vector<std::uint8_t> bytes(buffer.bytes());
  driver().copy(bytes.data(), buffer.data(), bytes.size(), stream.native());
  stream.synchronize();
  return bytes;
}

/// True if every byte is `value`.
inline bool holds(const memory::Buffer& buffer, int value, const Stream& stream) {
  return read(buffer, stream) ==
         std::vector<std::uint8_t>(buffer.bytes(), static_cast<std::uint8_t>(value));
}

/// The bytes of a buffer, also after it was freed.
struct AddressSpan {
  explicit AddressSpan(const memory::Buffer& buffer)
      : begin(reinterpret_cast<std::uintptr_t>(buffer.data())), end(begin + buffer.bytes()) {}
  [[nodiscard]] bool overlaps(const memory::Buffer& buffer) const {
    const AddressSpan other(buffer);
    return begin < other.end && other.begin < end;
  }

  std::uintptr_t begin;
  std::uintptr_t end;
};

}  // namespace gantry::testing
