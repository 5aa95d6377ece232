#pragma once

#include <nccl.h>

#include <source_location>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

namespace gantry {

// Throws NcclError "Failed <doing>: <NCCL text> [<call>]" unless `status` is success.
void check_nccl(ncclResult_t status, const char* call, const char* doing, ncclComm_t comm = nullptr,
                std::source_location where = std::source_location::current());

#define GANTRY_NCCL_CHECK(call, doing) ::gantry::check_nccl((call), #call, (doing))

// NCCL's numbers for dtypes and ops. bool travels as bytes of 0 and 1, whose sum is their maximum
// and whose product is their minimum. Precondition: nccl_supports.
ncclDataType_t nccl_dtype(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op, DType dtype);

// Turns NVLink multicast off unless the user decided: its sums differ in order, and it can leave
// hosts that share a fabric with dead GPUs. To be called before the first NCCL communicator.
void prepare_nccl_environment();

}  // namespace gantry
