#include "collectives/nccl/check.hpp"
#include "collectives/nccl/library.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include <gantry/core/error.hpp>

#include "collectives/nccl/clique.hpp"

namespace gantry {

void check_nccl(ncclResult_t status, const char* call, const char* doing, ncclComm_t comm,
                std::source_location where) {
  if (status == ncclSuccess) return;
  const char* detail = nccl().get_last_error(comm);
  throw NcclError(fmt::format("Failed {}: {}{}{} [{}]", doing, nccl().get_error_string(status),
                              detail != nullptr && *detail != '\0' ? ": " : "",
                              detail != nullptr ? detail : "", call),
                  {}, where);
}

ncclDataType_t nccl_dtype(DType dtype) {
  switch (dtype) {
    case DType::bool_:
    case DType::u8:
      return ncclUint8;
    case DType::i8:
      return ncclInt8;
    case DType::i16:
      break;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
  }
  throw NotSupported("NCCL has no 16-bit integer dtype: i16 sums need the p2p transport");
}

ncclRedOp_t nccl_op(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::sum:
      return dtype == DType::bool_ ? ncclMax : ncclSum;
    case ReduceOp::prod:
      return dtype == DType::bool_ ? ncclMin : ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      break;
  }
  throw NotSupported(fmt::format("NCCL has no operation {}: it needs the p2p transport", name(op)));
}

bool nccl_supports(ReduceOp op, DType dtype) {
  return dtype != DType::i16 && op != ReduceOp::band && op != ReduceOp::bor && op != ReduceOp::bxor;
}

void prepare_nccl_environment() { setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0); }

}  // namespace gantry
