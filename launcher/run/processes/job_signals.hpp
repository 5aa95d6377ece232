#pragma once

#include <vector>

namespace gantry::launcher {

/// Directs the signals that glaunch handles, and the signals of `forwarded`, to a descriptor. What
/// was ignored when glaunch began (nohup) stays ignored. Throws: std::system_error.
[[nodiscard]] int open_signal_fd(const std::vector<int>& forwarded);

/// Stops this process until it is continued, as Ctrl-Z does: not at all where no shell could
/// continue it, because no shell is there.
void stop_here();

}  // namespace gantry::launcher
