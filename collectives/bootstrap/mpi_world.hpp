#pragma once

#include <mpi.h>

namespace gantry {

// The communicator of all ranks, in which groups pass messages between hosts. MPI_COMM_NULL before
// the MPI bootstrap. Guarded by mpi_lock().
inline MPI_Comm& mpi_links_comm() {
  static MPI_Comm comm = MPI_COMM_NULL;
  return comm;
}

}  // namespace gantry
