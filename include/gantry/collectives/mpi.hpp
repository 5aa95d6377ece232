#pragma once

// Groups of the ranks of an MPI communicator, for any MPI: gantry/gantry.hpp itself knows Open
// MPI's communicators alone. This header includes MPI's; libgantry.so is not linked with MPI.

#include <mpi.h>

#include <type_traits>

#include <gantry/collectives/communicator.hpp>

namespace gantry::detail {
template <>
struct IsMpiComm<MPI_Comm> : std::true_type {};
}  // namespace gantry::detail
