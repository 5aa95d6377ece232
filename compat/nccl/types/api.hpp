// NCCL's host interface as its programs were compiled against it, for version 2.30. The numbers and
// layouts are NCCL's ABI, which never changes within libnccl.so.2.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;
using cudaStream_t = CUstream_st*;

extern "C" {

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
};

// Larger numbers name the operators that a program made for one communicator.
enum ncclRedOp_t : int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
};

enum ncclScalarResidence_t : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

enum ncclCommMemStat_t : int {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3,
};

// The part that all versions have. Later versions append members, and `size` counts them.
struct ncclConfig_t {
  std::size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
};

struct ncclSimInfo_t;

struct ncclWaitSignalDesc_t {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
};

// A set of ranks of the device interface.
struct ncclTeam_t {
  int nRanks;
  int rank;
  int stride;
};

}  // extern "C"

namespace gantry::nccl_api {

inline constexpr int kVersion = 23007;
inline constexpr unsigned int kConfigMagic = 0xcafebeef;
inline constexpr int kNoColor = -1;         // NCCL_SPLIT_NOCOLOR
inline constexpr int kShrinkAborts = 0x01;  // NCCL_SHRINK_ABORT

static_assert(sizeof(ncclUniqueId) == 128);
static_assert(offsetof(ncclConfig_t, blocking) == 16);

}  // namespace gantry::nccl_api
