#pragma once

#include <nccl.h>

#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "core/files/shared_library.hpp"

namespace gantry {

// The approximate device memory that a communicator of NCCL allocates.
inline constexpr std::size_t kNcclBytes = std::size_t{1} << 30;

// The functions of NCCL that gantry uses: FUNCTION(member, symbol).
#define GANTRY_NCCL_FUNCTIONS(FUNCTION)                 \
  FUNCTION(get_version, ncclGetVersion)                 \
  FUNCTION(get_unique_id, ncclGetUniqueId)              \
  FUNCTION(get_error_string, ncclGetErrorString)        \
  FUNCTION(get_last_error, ncclGetLastError)            \
  FUNCTION(comm_init_all, ncclCommInitAll)              \
  FUNCTION(comm_init_rank, ncclCommInitRank)            \
  FUNCTION(comm_count, ncclCommCount)                   \
  FUNCTION(comm_user_rank, ncclCommUserRank)            \
  FUNCTION(comm_cu_device, ncclCommCuDevice)            \
  FUNCTION(comm_abort, ncclCommAbort)                   \
  FUNCTION(comm_get_async_error, ncclCommGetAsyncError) \
  FUNCTION(group_start, ncclGroupStart)                 \
  FUNCTION(group_end, ncclGroupEnd)                     \
  FUNCTION(all_gather, ncclAllGather)                   \
  FUNCTION(all_reduce, ncclAllReduce)                   \
  FUNCTION(broadcast, ncclBroadcast)                    \
  FUNCTION(reduce, ncclReduce)                          \
  FUNCTION(reduce_scatter, ncclReduceScatter)           \
  FUNCTION(send, ncclSend)                              \
  FUNCTION(recv, ncclRecv)
struct NcclFunctions {
#define GANTRY_NCCL_MEMBER(member, symbol) decltype(&(symbol)) member = nullptr;
  GANTRY_NCCL_FUNCTIONS(GANTRY_NCCL_MEMBER)
#undef GANTRY_NCCL_MEMBER
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
  // Makes NCCL's own library one that cannot be used.
  void require_simulated_devices();

 private:
  // True if libgantry_nccl.so stands in NCCL's place.
  [[nodiscard]] bool is_own() const;
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

// Runs `submit()` in one NCCL group. It returns the first failure of its calls, and throws nothing:
// that would leave the group of this thread open. `calls` and `doing` are for check_nccl().
template <class Submit>
void in_nccl_group(const char* calls, const char* doing, ncclComm_t comm, Submit submit) {
  check_nccl(nccl().group_start(), "ncclGroupStart", doing, comm);
  const ncclResult_t failure = submit();
  const ncclResult_t end = nccl().group_end();
  check_nccl(failure, calls, doing, comm);
  check_nccl(end, "ncclGroupEnd", doing, comm);
}

// NCCL's values for dtypes and ops. A bool is a byte of 0 or 1, whose sum is the maximum and whose
// product is the minimum. Precondition: nccl_supports().
ncclDataType_t nccl_dtype(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op, DType dtype);

// Disables NVLink multicast (NVLS) unless the user chose it: its sums have another order, and it
// can leave hosts that share a fabric with dead GPUs. Called before the first NCCL communicator.
void prepare_nccl_environment();

}  // namespace gantry
