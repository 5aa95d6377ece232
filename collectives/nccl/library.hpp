#pragma once

#include <nccl.h>

#include <string>
#include <string_view>
#include <vector>

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

}  // namespace gantry
