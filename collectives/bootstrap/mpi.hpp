#pragma once

#include <mutex>

#include "collectives/mpi/functions.hpp"

namespace gantry {

// The lock around every MPI call. MPI is initialized with MPI_THREAD_SERIALIZED, but several
// threads may use communicators of one process.
std::mutex& mpi_lock();

// The communicator of all ranks, in which groups pass messages between hosts. Null before
// the MPI bootstrap. Guarded by mpi_lock().
MpiComm& mpi_links_comm();

}  // namespace gantry
