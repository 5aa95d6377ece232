#pragma once

#include <mpi.h>

namespace gantry {

// The communicator of all ranks of the program in which groups pass messages between their hosts;
// MPI_COMM_NULL before the ranks have met by MPI. Guarded by mpi_lock().
inline MPI_Comm& mpi_links_comm() {
  static MPI_Comm comm = MPI_COMM_NULL;
  return comm;
}

}  // namespace gantry
