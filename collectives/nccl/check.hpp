#pragma once

#include <nccl.h>

#include <source_location>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

namespace gantry {

// Throws NcclError "Failed <doing>: <NCCL text> [<call>]" unless `status` is success. `call` names
// the function.
void check_nccl(ncclResult_t status, const char* call, const char* doing, ncclComm_t comm = nullptr,
                std::source_location where = std::source_location::current());

// NCCL's values for dtypes and ops. A bool is a byte of 0 or 1, whose sum is the maximum and whose
// product is the minimum. Precondition: nccl_supports().
ncclDataType_t nccl_dtype(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op, DType dtype);

// Disables NVLink multicast (NVLS) unless the user chose it: its sums have another order, and it
// can leave hosts that share a fabric with dead GPUs. Called before the first NCCL communicator.
void prepare_nccl_environment();

}  // namespace gantry
