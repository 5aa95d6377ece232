// A libgantry_mpi.so of another version of gantry; with FAKE_MPI_MODULE=bound one of this version,
// which another MPI library than its own has been bound to.
#include <cstdlib>

#include "collectives/mpi/functions.hpp"

extern "C" __attribute__((visibility("default"))) const gantry::MpiFunctions*
gantry_mpi_functions();

const gantry::MpiFunctions* gantry_mpi_functions() {
  using gantry::kMpiFunctionsVersion;
  static gantry::MpiFunctions functions{};
  functions.version = kMpiFunctionsVersion + 1;
  if (std::getenv("FAKE_MPI_MODULE") != nullptr) {
    functions.version = kMpiFunctionsVersion;
    functions.bound_function = [](int*) { return 0; };
  }
  return &functions;
}
