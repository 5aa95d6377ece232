#pragma once

namespace gantry {

class ControlBlock;

// The thread of this process that looks after all its groups: it wakes kernels and host calls when
// a rank dies, leaves, or does not come. It never calls the driver. Started with the first group.
// Thread safety: every member may be called from any thread.
class Watchdog {
 public:
  // Looks after `group` until remove(), which waits for a look that is under way.
  static void add(ControlBlock& group);
  static void remove(ControlBlock& group) noexcept;
};

}  // namespace gantry
