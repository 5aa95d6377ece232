#pragma once

#include <chrono>
#include <functional>

#include "launcher/run/events/event_loop.hpp"

namespace gantry::launcher {

/// The pauses before starts of something that fails again and again.
///
/// They double each time, up to a minute, and begin anew after a run of ten minutes: that failure
/// has nothing to do with the ones before.
class Backoff {
 public:
  using Now = std::function<Clock::time_point()>;

  /// The first pause is `first_delay`.
  explicit Backoff(std::chrono::milliseconds first_delay, Now now = Clock::now);

  /// Tells that a run starts now.
  void begin_run();
  /// The pause after this run.
  [[nodiscard]] std::chrono::milliseconds next_delay();

 private:
  std::chrono::milliseconds first_delay_;
  Now now_;
  Clock::time_point begin_;
  int doublings_ = 0;
};

/// True if a second try cannot mend a process that exits with `code`: glaunch and shells exit so
/// for commands that cannot be run.
[[nodiscard]] bool is_usage_error(int code);

}  // namespace gantry::launcher
