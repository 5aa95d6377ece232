// Which devices may access which as peers, for memory that has to be opened to each of them.
#pragma once

#include <functional>
#include <vector>

namespace gantry {

/// The devices for which enable_peer_access(device, `owner`) was called.
[[nodiscard]] std::vector<int> devices_with_access_to(int owner);

/// Calls `listener(from, to)` each time `from` gets access to `to`, after the driver allowed it and
/// before enable_peer_access returns. Listeners are never removed.
void on_peer_access(std::function<void(int from, int to)> listener);

}  // namespace gantry
