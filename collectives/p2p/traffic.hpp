// Counts of transfers over peer memory. See Note [Counted traffic].
#pragma once

#include "collectives/call.hpp"
#include "collectives/traffic.hpp"

namespace gantry {

// Counts what a group of `ranks` ranks over p2p moves for a collective whose choice is set, on
// blocks of one size. `opens`: all ranks can access each other's arrays, and no algorithm is
// forced.
Steps count_over_peers(const ResolvedCall& call, int ranks, bool opens,
                       const TransferVisitor& visit);

// Counts a send and its recv, up to the end of the recv. `opens`: the receiver can access the
// sender's array.
Steps count_message_over_peers(const Descriptor& what, int from, int to, int ranks, bool opens,
                               const TransferVisitor& visit);

}  // namespace gantry
