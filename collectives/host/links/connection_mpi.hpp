#pragma once

#include <vector>

#include "collectives/host/links/links.hpp"
#include "collectives/mpi/functions.hpp"

namespace gantry {

// Note [Groups over MPI]
// MPI_Comm_create_group blocks until all its ranks call it, without a deadline. gantry calls MPI
// from one thread at a time, so other groups of the process would wait too. Threads that create two
// groups of the same ranks at once may even get each other's communicator. So groups share one
// communicator of all ranks, which the bootstrap creates. Each group has its own tags: the first
// rank of a group numbers the groups in which it is the first rank. A group gets its own
// communicator if the bootstrap is not MPI, or if the tags run out.

// The communicator and tags through which the ranks of one group pass messages.
struct MpiConnection {
  MpiComm comm;
  std::vector<int> members;  // the group's ranks, as ranks of comm
  int tag = 0;               // of data; tag + 1 is of control messages
};

// Opens the connection of a group. Collective. Throws: NotSupported if some ranks are not inside
// MPI_COMM_WORLD; Error.
MpiConnection open_mpi_connection(Bootstrap& bootstrap);

}  // namespace gantry
