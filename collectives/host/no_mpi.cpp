#include <gantry/core/error.hpp>

#include "collectives/host/links.hpp"

namespace gantry {

bool can_link_by_mpi() { return false; }

std::unique_ptr<HostLinks> make_mpi_links(Bootstrap&, const LinkGroup&) {
  throw NotSupported("GANTRY_HOST_LINKS: this build of gantry has no MPI (GANTRY_MPI=OFF)");
}

}  // namespace gantry
