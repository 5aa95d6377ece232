#pragma once

// Groups of the ranks of an MPI communicator, for any MPI library. Without this header, gantry
// knows the communicators of Open MPI only. It includes mpi.h; libgantry.so is not linked with MPI.

#include <mpi.h>

#include <type_traits>

#include <gantry/collectives/communicator.hpp>

namespace gantry::detail {
template <>
struct IsMpiComm<MPI_Comm> : std::true_type {};
}  // namespace gantry::detail
