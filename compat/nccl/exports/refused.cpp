// Exported: functions that gantry does not carry, and questions whose answer is always the same.
#include <cstdio>

#include "compat/nccl/outcome.hpp"
#include "compat/nccl/rank.hpp"

namespace gantry::nccl_api {

namespace {

constexpr const char* kNoDeviceInterface =
    "gantry does not have NCCL's device interface: kernels that were compiled for it know NCCL's "
    "own structures";
constexpr const char* kNoMulticast = "gantry does not use NVLink multicast";
constexpr const char* kNoParameters = "gantry does not have NCCL's parameters";

// All ranks of a communicator.
ncclTeam_t world_of(ncclComm_t comm) noexcept {
  try {
    const std::shared_ptr<Rank> rank = rank_of(comm);
    return {rank->size, rank->rank, 1};
  } catch (...) {
    return {0, 0, 1};
  }
}

}  // namespace

// Marks this library for gantry, which would load it as NCCL.
extern "C" {
__attribute__((visibility("default"))) extern const char gantry_nccl_marker;
const char gantry_nccl_marker = 1;
}

// A refused function, whose arguments are not looked at.
#define GANTRY_NCCL_REFUSED(function, reason) \
  GANTRY_NCCL_API ncclResult_t function() { return refuse(#function, reason); }

GANTRY_NCCL_REFUSED(ncclDevCommCreate, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclDevCommDestroy, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclGinBarrierCreateRequirement, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclGinOutboxCreateRequirement, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclGinInboxA2ACreateRequirement, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclLLA2ACreateRequirement, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclLsaBarrierCreateRequirement, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclCommQueryProperties, kNoDeviceInterface)
GANTRY_NCCL_REFUSED(ncclGetMultimemDevicePointer, kNoMulticast)
GANTRY_NCCL_REFUSED(ncclGetLsaMultimemDevicePointer, kNoMulticast)
GANTRY_NCCL_REFUSED(ncclCommMemStats, "gantry does not count the memory of one communicator")
GANTRY_NCCL_REFUSED(ncclParamBind, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGet, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetI8, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetI16, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetI32, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetI64, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetU8, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetU16, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetU32, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetU64, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetStr, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetParameter, kNoParameters)
GANTRY_NCCL_REFUSED(ncclParamGetAllParameterKeys, kNoParameters)

GANTRY_NCCL_API void ncclParamDumpAll() { std::fprintf(stderr, "%s\n", kNoParameters); }
GANTRY_NCCL_API int ncclLLA2ACalcSlots(int /*elements*/, int /*bytes*/) { return 0; }
GANTRY_NCCL_API ncclTeam_t ncclTeamWorld(ncclComm_t comm) { return world_of(comm); }
GANTRY_NCCL_API ncclTeam_t ncclTeamLsa(ncclComm_t comm) { return world_of(comm); }
GANTRY_NCCL_API ncclTeam_t ncclTeamRail(ncclComm_t comm) { return world_of(comm); }
GANTRY_NCCL_API int ncclTeamRankToWorld(ncclComm_t /*comm*/, ncclTeam_t /*team*/, int rank) {
  return rank;
}
GANTRY_NCCL_API int ncclTeamRankToLsa(ncclComm_t /*comm*/, ncclTeam_t /*team*/, int rank) {
  return rank;
}

}  // namespace gantry::nccl_api
