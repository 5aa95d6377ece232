#pragma once

#include <vector>

#include "collectives/host/links.hpp"
#include "core/socket.hpp"

namespace gantry {

using Socket = UniqueFd;

// Note [Two connections]
// Data may stand still for as long as a rank computes, and a full window looks like a dead machine
// to TCP's own timers. So every pair of ranks has a second connection on which nothing is sent but
// one last notice: its keepalives find a machine that is cut off within seconds, however busy or
// stopped the process on it is, and its end tells that a process died. It also lets a rank that
// gives up say whose fault it is, wherever its data connections stand.

// The connections to one rank; none for a rank itself.
struct PeerSockets {
  Socket data;
  Socket notices;
};

// What a rank's links are made of.
struct LinkSockets {
  Socket wake;                     // an eventfd, which ends a wait on the others
  std::vector<PeerSockets> peers;  // by rank
};

// Connects every rank with every other one. Collective; on all ranks or on none.
// Throws: Error that names the ranks that failed and why; PeerLostError, TimeoutError.
LinkSockets connect_ranks(Bootstrap& bootstrap, const LinkGroup& group);

}  // namespace gantry
