#pragma once

#include <mutex>

namespace gantry {

// The lock around every MPI call. MPI is initialized with MPI_THREAD_SERIALIZED, but several
// threads may use communicators of one process.
std::mutex& mpi_lock();

}  // namespace gantry
