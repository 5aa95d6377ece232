/* Numbers, sizes and offsets of NCCL's ABI, as nccl.h has them. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct NcclFact {
  const char* name;
  long value;
};

/* Ends with a null name. */
extern const struct NcclFact nccl_facts[];

#ifdef __cplusplus
}
#endif
