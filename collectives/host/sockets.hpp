#pragma once

#include <vector>

#include "collectives/host/links.hpp"
#include "core/socket.hpp"

namespace gantry {

using Socket = UniqueFd;

// Note [Two connections]
// Data may stall for as long as a rank computes, and a full TCP window looks like a dead machine to
// TCP's timers. So every pair of ranks has a second connection, which carries one last control
// message. Its keepalives detect an unreachable machine within seconds, even if the process there
// is busy or stopped. Its end signals a process's death. A rank that fails also names the failed
// rank there, whatever the state of its data connections.

// The connections to one rank; empty for the rank itself.
struct PeerSockets {
  Socket data;
  Socket control;
};

// The sockets of a rank's links.
struct LinkSockets {
  Socket wake;                     // an eventfd that interrupts a wait on the others
  std::vector<PeerSockets> peers;  // by rank
};

// Connects every pair of ranks. Collective: it succeeds on all ranks or on none.
// Throws: Error that names the failed ranks and causes; PeerLostError, TimeoutError.
LinkSockets connect_ranks(Bootstrap& bootstrap, const LinkGroup& group);

}  // namespace gantry
