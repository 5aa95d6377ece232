#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/host/links/links.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Exchanges failures, of which `mine` is empty if there is none. Returns the first rank with one,
// and its text; −1 if there is none. Collective.
std::pair<int, std::string> first_failure(Bootstrap& everyone, const std::string& mine);

// Starts NCCL on all ranks or on none: a rank on which it fails wakes the ranks that wait for it
// inside of NCCL. `make(check)` is make_watched_nccl_transport() with this `check`. Returns null,
// and sets `why_not`, if it fails on a rank. Collective. Throws: PeerLostError; TimeoutError for a
// process that is stopped at the deadline.
using MakeNccl = std::function<std::unique_ptr<Transport>(const std::function<void()>& check)>;
std::unique_ptr<Transport> start_nccl(Bootstrap& everyone, LinkMonitor& monitor,
                                      const GroupTimeout& timeout, const MakeNccl& make,
                                      std::string& why_not);

}  // namespace gantry
