// Counts of transfers through the host. See Note [Counted traffic].
#pragma once

#include "collectives/selection/descriptor.hpp"
#include "collectives/traffic.hpp"

namespace gantry {

// Counts what a HostTransport of `ranks` ranks moves for a collective on blocks of one size. Every
// message is counted with its frame.
Steps count_over_hosts(const Descriptor& what, int ranks, const TransferVisitor& visit);

// Counts a send and its recv between two of `ranks` ranks.
Steps count_message_over_hosts(const Descriptor& what, int from, int to, int ranks,
                               const TransferVisitor& visit);

// Counts HostTransport::verify() for blocks of one size.
Steps count_verification(int ranks, const TransferVisitor& visit);

}  // namespace gantry
