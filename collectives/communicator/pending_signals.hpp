// The signals and waits of a window that have not ended on the device.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/control/operation_deadlines.hpp"

namespace gantry {

// The group owns it too: a wait may be pending when the program drops the window.
// Thread safety: is_waiting() any thread; begin() and end() one at a time.
class PendingSignals {
 public:
  // Called when `peer` did not do its part in time: it did not take a signal, or did not send one.
  // May run when this object is no more.
  using OnLate = std::function<void(int peer, bool sends, const std::string& text)>;

  // `timeout`: of the group.
  PendingSignals(Device device, GroupTimeout timeout, OnLate on_late)
      : device_(device), timeout_(std::move(timeout)), on_late_(std::move(on_late)) {}

  // Enclose the submission of a signal to `peer`, or of the wait for one of it. `text` describes
  // it. Throws: CudaError; std::system_error at the first call.
  void begin(const Stream& stream, int peer, bool sends, std::string text);
  void end(const Stream& stream);
  // Queries the driver.
  [[nodiscard]] bool is_waiting() const;

 private:
  OperationDeadlines& started_deadlines();

  const Device device_;
  const GroupTimeout timeout_;
  const OnLate on_late_;
  mutable std::mutex mutex_;  // guards events_
  std::vector<std::shared_ptr<Event>> events_;
  std::optional<OperationDeadlines> deadlines_;
};

}  // namespace gantry
