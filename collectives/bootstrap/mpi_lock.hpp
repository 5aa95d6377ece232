#pragma once

#include <mutex>

namespace gantry {

// Held around every call of MPI: it was initialised with MPI_THREAD_SERIALIZED, and communicators
// of one process may be used by several threads.
inline std::mutex& mpi_lock() {
  static std::mutex lock;
  return lock;
}

}  // namespace gantry
