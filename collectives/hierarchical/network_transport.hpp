#pragma once

#include <memory>

#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/host/transport.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Makes the transport of ranks on several machines in which `nccl`, among all ranks, moves the data
// of collectives. It is of make_watched_nccl_transport(). The hosts compare the calls over the
// links of `all`, which also carries messages and barriers. Note [Losses between machines] has the
// rest.
//
// run() blocks the host until the other ranks have entered, and not for the transfer. Requires that
// the links have a monitor.
std::unique_ptr<Transport> make_network_transport(const Membership& everyone,
                                                  std::unique_ptr<HostTransport> all,
                                                  std::unique_ptr<Transport> nccl,
                                                  GroupTimeout timeout);

}  // namespace gantry
