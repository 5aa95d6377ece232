#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

bool has_mpi() { return false; }

std::unique_ptr<Bootstrap> make_mpi_bootstrap(std::chrono::milliseconds /*timeout*/) {
  throw NotSupported("Communicator::world: this build of gantry has no MPI (GANTRY_MPI=OFF)");
}

}  // namespace gantry
