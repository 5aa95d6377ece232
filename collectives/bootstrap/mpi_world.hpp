#pragma once

#include "collectives/mpi/functions.hpp"

namespace gantry {

// The communicator of all ranks, in which groups pass messages between hosts. Null before
// the MPI bootstrap. Guarded by mpi_lock().
MpiComm& mpi_links_comm();

}  // namespace gantry
