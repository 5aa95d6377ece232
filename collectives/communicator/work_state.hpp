#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <gantry/collectives/work.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// The shared state of the handles of one operation.
struct Work::State {
  Device device;
  std::shared_ptr<Event> done;
  // The stream of a call that was captured into a graph, where `done` is recorded in the capture.
  std::optional<Stream> captured_on{};
  std::uint64_t capture = 0;  // Driver::capture_id of that capture
  // Throws the error of the call, if it failed. `pending`: it still runs. May be empty.
  std::function<void(bool pending)> check;
  bool is_open = false;  // its group() scope is open

  // Marks the end of the call in `stream`, also in a capture.
  void mark_end(const Stream& stream);
  // True while the capture of the call goes on.
  [[nodiscard]] bool is_in_capture() const;
};

}  // namespace gantry
