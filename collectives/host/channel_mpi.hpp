#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "collectives/host/links.hpp"

namespace gantry {

// Note [Groups over MPI]
// MPI makes a communicator of some ranks only while all of them wait for each other, without a
// deadline and, as it is called by one thread at a time, in the way of all other groups of the
// process. Threads that make two groups of the same ranks at once even get each other's. So groups
// share one communicator of all ranks, which is made with the bootstrap, under tags that no other
// group uses in which two of their ranks are: the first rank of each group counts the groups that
// it is first of. Where MPI was not what ranks met by, or has few tags, there is no way around it.

// Where the ranks of one group pass messages to each other.
struct MpiChannel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> members;  // as ranks of comm
  int tag = 0;               // of messages; the next one is of notices
};

// Collective. Throws: NotSupported if some ranks are not inside MPI_COMM_WORLD; Error.
MpiChannel open_mpi_channel(Bootstrap& bootstrap);

std::string mpi_error_text(int status);

}  // namespace gantry
