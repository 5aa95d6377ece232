#pragma once

#include <cstdint>
#include <type_traits>

#include <gantry/core/macros.hpp>  // tells an older standard

struct ompi_communicator_t;  // Open MPI's MPI_Comm points to it

namespace gantry::detail {

// True for MPI_Comm. Other libraries than Open MPI need <gantry/collectives/mpi.hpp>.
template <class T>
struct IsMpiComm : std::is_same<T, ompi_communicator_t*> {};
template <class T>
concept MpiHandle = IsMpiComm<T>::value && sizeof(T) <= sizeof(std::uintptr_t);

}  // namespace gantry::detail
