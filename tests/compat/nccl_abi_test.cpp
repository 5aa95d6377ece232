// The numbers and layouts of compat/nccl/types/api.hpp are the ones that nccl.h has.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "compat/nccl/types/api.hpp"
#include "tests/compat/nccl_abi_facts.h"

namespace gantry::nccl_api {
namespace {

#define NUMBER(name) \
  { #name, static_cast < long>(name) }
#define SIZE(type) \
  { "sizeof " #type, static_cast<long>(sizeof(type)) }
#define OFFSET(type, member) \
  { #type "." #member, static_cast < long>(offsetof(type, member)) }

const std::map<std::string, long> kOwn{
    NUMBER(ncclSuccess),
    NUMBER(ncclUnhandledCudaError),
    NUMBER(ncclSystemError),
    NUMBER(ncclInternalError),
    NUMBER(ncclInvalidArgument),
    NUMBER(ncclInvalidUsage),
    NUMBER(ncclRemoteError),
    NUMBER(ncclInProgress),
    NUMBER(ncclTimeout),
    NUMBER(ncclInt8),
    NUMBER(ncclUint8),
    NUMBER(ncclInt32),
    NUMBER(ncclUint32),
    NUMBER(ncclInt64),
    NUMBER(ncclUint64),
    NUMBER(ncclFloat16),
    NUMBER(ncclFloat32),
    NUMBER(ncclFloat64),
    NUMBER(ncclBfloat16),
    NUMBER(ncclFloat8e4m3),
    NUMBER(ncclFloat8e5m2),
    NUMBER(ncclNumTypes),
    NUMBER(ncclSum),
    NUMBER(ncclProd),
    NUMBER(ncclMax),
    NUMBER(ncclMin),
    NUMBER(ncclAvg),
    NUMBER(ncclNumOps),
    NUMBER(ncclScalarDevice),
    NUMBER(ncclScalarHostImmediate),
    NUMBER(ncclStatGpuMemSuspend),
    NUMBER(ncclStatGpuMemSuspended),
    NUMBER(ncclStatGpuMemPersist),
    NUMBER(ncclStatGpuMemTotal),
    SIZE(ncclUniqueId),
    SIZE(ncclResult_t),
    SIZE(ncclDataType_t),
    SIZE(ncclRedOp_t),
    SIZE(ncclScalarResidence_t),
    SIZE(ncclWaitSignalDesc_t),
    OFFSET(ncclConfig_t, size),
    OFFSET(ncclConfig_t, magic),
    OFFSET(ncclConfig_t, version),
    OFFSET(ncclConfig_t, blocking),
    OFFSET(ncclWaitSignalDesc_t, opCnt),
    OFFSET(ncclWaitSignalDesc_t, peer),
    OFFSET(ncclWaitSignalDesc_t, sigIdx),
    OFFSET(ncclWaitSignalDesc_t, ctx),
    {"NCCL_SPLIT_NOCOLOR", kNoColor},
    {"NCCL_SHRINK_ABORT", kShrinkAborts},
    {"NCCL_API_MAGIC", kConfigMagic},
};

TEST(NcclAbi, IsTheOneOfTheHeader) {
  int facts = 0;
  for (const NcclFact* fact = nccl_facts; fact->name != nullptr; ++fact, ++facts) {
    const auto own = kOwn.find(fact->name);
    ASSERT_NE(own, kOwn.end()) << fact->name;
    EXPECT_EQ(own->second, fact->value) << fact->name;
  }
  EXPECT_GE(facts, 35);
}

}  // namespace
}  // namespace gantry::nccl_api
