// The state that a graph needs at each replay.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <gantry/streams/stream.hpp>

namespace gantry {

/// Host work of a captured operation that belongs to every replay, such as the next position of a
/// random generator.
class ReplayAction {
 public:
  virtual ~ReplayAction() = default;
  /// Submits to `stream` what the captured work needs. Called before each replay there, in order.
  virtual void prepare(const Stream& stream) = 0;
  /// True if the captured work needs nothing, so that prepare() may be left out.
  [[nodiscard]] virtual bool is_idle() const { return false; }
};

/// The replay actions of one graph, which a capture adds, and the devices of the capture.
///
/// Thread safety: find_or_add() by any thread of the capture; the others when the capture is over.
class GraphRecording {
 public:
  /// True while a Graph captures, on any stream of any thread. One load.
  [[nodiscard]] static bool is_any_under_way() noexcept;
  /// The recording of the Graph that `stream` is being captured into; nullptr if there is none, as
  /// for captures that the program began by other means. One load while no Graph captures.
  [[nodiscard]] static std::shared_ptr<GraphRecording> of(const Stream& stream);
  /// Makes of() find `recording` for a capture of the driver, until forget().
  static void announce(std::uint64_t capture, std::shared_ptr<GraphRecording> recording);
  static void forget(const GraphRecording& recording) noexcept;

  /// The action of `key`, which `make` makes at the first call.
  std::shared_ptr<ReplayAction> find_or_add(
      const void* key, const std::function<std::shared_ptr<ReplayAction>()>& make);
  /// The action of `key`; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<ReplayAction> find(const void* key);
  /// True if no action has work.
  [[nodiscard]] bool is_empty() const;
  /// The devices that took part in the capture, ascending; see Note [Devices of a capture].
  [[nodiscard]] std::span<const int> devices() const { return devices_; }
  void set_devices(std::vector<int> devices) { devices_ = std::move(devices); }
  void prepare(const Stream& stream) const;

 private:
  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<ReplayAction>> actions_;
  std::vector<int> devices_;
};

}  // namespace gantry
