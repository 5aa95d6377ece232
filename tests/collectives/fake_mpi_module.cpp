// A libgantry_mpi.so of another version of gantry.
#include "collectives/mpi/functions.hpp"

extern "C" __attribute__((visibility("default"))) const gantry::MpiFunctions*
gantry_mpi_functions();

const gantry::MpiFunctions* gantry_mpi_functions() {
  static const gantry::MpiFunctions functions{.version = gantry::kMpiFunctionsVersion + 1};
  return &functions;
}
