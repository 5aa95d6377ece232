#pragma once

// Groups of the ranks of an NCCL communicator: Communicator::from_nccl(). This header declares the
// type as NCCL's header does, so it needs no NCCL. libgantry.so is not linked with NCCL.

#include <gantry/collectives/communicator.hpp>

/// NCCL's handle of a communicator, as in its own header.
using ncclComm_t = ncclComm*;
