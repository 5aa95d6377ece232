/* Compiled as C with the real nccl.h, as NCCL's programs are. */
#include "tests/compat/nccl_abi_facts.h"

#include <nccl.h>
#include <stddef.h>

#define NUMBER(name) \
  { #name, (long)(name) }
#define SIZE(type) \
  { "sizeof " #type, (long)sizeof(type) }
#define OFFSET(type, member) \
  { #type "." #member, (long)offsetof(type, member) }

const struct NcclFact nccl_facts[] = {NUMBER(ncclSuccess),
                                      NUMBER(ncclUnhandledCudaError),
                                      NUMBER(ncclSystemError),
                                      NUMBER(ncclInternalError),
                                      NUMBER(ncclInvalidArgument),
                                      NUMBER(ncclInvalidUsage),
                                      NUMBER(ncclRemoteError),
                                      NUMBER(ncclInProgress),
                                      NUMBER(ncclInt8),
                                      NUMBER(ncclUint8),
                                      NUMBER(ncclInt32),
                                      NUMBER(ncclUint32),
                                      NUMBER(ncclInt64),
                                      NUMBER(ncclUint64),
                                      NUMBER(ncclFloat16),
                                      NUMBER(ncclFloat32),
                                      NUMBER(ncclFloat64),
                                      NUMBER(ncclSum),
                                      NUMBER(ncclProd),
                                      NUMBER(ncclMax),
                                      NUMBER(ncclMin),
                                      NUMBER(ncclAvg),
                                      NUMBER(ncclNumOps),
                                      NUMBER(ncclScalarDevice),
                                      NUMBER(ncclScalarHostImmediate),
                                      SIZE(ncclUniqueId),
                                      SIZE(ncclResult_t),
                                      SIZE(ncclDataType_t),
                                      SIZE(ncclRedOp_t),
                                      SIZE(ncclScalarResidence_t),
                                      OFFSET(ncclConfig_t, size),
                                      OFFSET(ncclConfig_t, magic),
                                      OFFSET(ncclConfig_t, version),
                                      OFFSET(ncclConfig_t, blocking),
                                      NUMBER(NCCL_SPLIT_NOCOLOR),
#ifdef NCCL_API_MAGIC
                                      NUMBER(NCCL_API_MAGIC),
#endif
#if defined(__CUDA_BF16_TYPES_EXIST__) || NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
                                      NUMBER(ncclBfloat16),
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
                                      NUMBER(ncclFloat8e4m3),
                                      NUMBER(ncclFloat8e5m2),
                                      NUMBER(ncclNumTypes),
#endif
#ifdef NCCL_SHRINK_ABORT
                                      NUMBER(NCCL_SHRINK_ABORT),
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
                                      NUMBER(ncclTimeout),
                                      NUMBER(ncclStatGpuMemSuspend),
                                      NUMBER(ncclStatGpuMemSuspended),
                                      NUMBER(ncclStatGpuMemPersist),
                                      NUMBER(ncclStatGpuMemTotal),
                                      SIZE(ncclWaitSignalDesc_t),
                                      OFFSET(ncclWaitSignalDesc_t, opCnt),
                                      OFFSET(ncclWaitSignalDesc_t, peer),
                                      OFFSET(ncclWaitSignalDesc_t, sigIdx),
                                      OFFSET(ncclWaitSignalDesc_t, ctx),
#endif
                                      {0, 0}};
