#pragma once

namespace gantry {

class ControlSegment;

// The thread of this process that checks all its groups. It wakes kernels and host calls when a
// rank dies, leaves, or is late. It starts with the first group and never calls the driver. Thread
// safety: any thread may call every member.
class Watchdog {
 public:
  // Checks `group` periodically until remove(), which waits for a check in progress.
  static void add(ControlSegment& group);
  static void remove(ControlSegment& group) noexcept;
};

}  // namespace gantry
