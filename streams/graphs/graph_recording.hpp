// What a graph does before each replay.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <gantry/streams/stream.hpp>

namespace gantry {

/// Host work of a captured operation that belongs to every replay, such as the next position of a
/// random generator.
class ReplayAction {
 public:
  virtual ~ReplayAction() = default;
  /// Submits to `stream` what the captured work needs. Called before each replay there, in order.
  virtual void prepare(const Stream& stream) = 0;
};

/// The replay actions of one graph, which a capture adds.
///
/// Thread safety: add() by any thread of the capture; the others when the capture is over.
class GraphRecording {
 public:
  /// The recording of the Graph that `stream` is being captured into; nullptr if there is none, as
  /// for captures that the program began by other means. One load while no Graph captures.
  [[nodiscard]] static std::shared_ptr<GraphRecording> of(const Stream& stream);
  /// Makes of() find `recording` for a capture of the driver, until forget().
  static void announce(std::uint64_t capture, std::shared_ptr<GraphRecording> recording);
  static void forget(const GraphRecording& recording) noexcept;

  /// The action of `key`, which `make` makes at the first call.
  std::shared_ptr<ReplayAction> find_or_add(
      const void* key, const std::function<std::shared_ptr<ReplayAction>()>& make);
  [[nodiscard]] bool is_empty() const { return actions_.empty(); }
  void prepare(const Stream& stream) const {
    for (const auto& [key, action] : actions_) action->prepare(stream);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<ReplayAction>> actions_;
};

}  // namespace gantry
