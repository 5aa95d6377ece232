#pragma once

#include <nccl.h>

#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "core/files/shared_library.hpp"

namespace gantry {

// The functions of NCCL that gantry uses.
struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclCommInitAll) comm_init_all = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommCount) comm_count = nullptr;
  decltype(&ncclCommUserRank) comm_user_rank = nullptr;
  decltype(&ncclCommCuDevice) comm_cu_device = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
};

// NCCL's library. See nccl_problem() in collectives/transport.hpp.
class NcclLibrary {
 public:
  // Loads the first of `candidates` that can be loaded.
  explicit NcclLibrary(const std::vector<std::string>& candidates);

  // Why NCCL cannot be used: as SharedLibrary::problem().
  const std::string& problem() const { return library_.problem(); }
  // Throws: NotSupported "<operation>: <problem>" if there is a problem.
  void require(std::string_view operation) const { library_.require(operation); }
  // Throws: as require().
  const NcclFunctions& functions() const;

 private:
  void check_version();

  SharedLibrary library_;
  NcclFunctions functions_;
};

// The library of this process, which the first call loads.
const NcclLibrary& nccl_library();
// The functions of nccl_library(). Throws: NotSupported without NCCL.
inline const NcclFunctions& nccl() { return nccl_library().functions(); }

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
