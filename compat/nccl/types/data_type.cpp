#include "compat/nccl/types/data_type.hpp"

#include <array>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry::nccl_api {

namespace {

constexpr std::array<DataType, ncclNumTypes> kTypes{{
    {"i8", DType::i8, DType::i8, Arithmetic::own, false},
    {"u8", DType::u8, DType::u8, Arithmetic::own, false},
    {"i32", DType::i32, DType::i32, Arithmetic::own, false},
    {"u32", DType::u32, DType::u32, Arithmetic::own, false},
    {"i64", DType::i64, DType::i64, Arithmetic::own, false},
    {"u64", DType::u64, DType::u64, Arithmetic::own, false},
    {"f16", DType::f16, DType::f16, Arithmetic::own, true},
    {"f32", DType::f32, DType::f32, Arithmetic::own, true},
    {"f64", DType::f64, DType::f64, Arithmetic::own, true},
    {"bf16", DType::bf16, DType::bf16, Arithmetic::own, true},
    {"f8e4m3", DType::u8, DType::f32, Arithmetic::small_float, true},
    {"f8e5m2", DType::u8, DType::f32, Arithmetic::small_float, true},
}};

}  // namespace

const DataType& data_type(ncclDataType_t type) {
  if (type >= 0 && type < ncclNumTypes) return kTypes[static_cast<std::size_t>(type)];
  throw InvalidArgument("expected a type from 0 to 11, but got " +
                        std::to_string(static_cast<int>(type)));
}

std::size_t element_bytes(ncclDataType_t type) { return element_size(data_type(type).moved_as); }

ReduceOp rank_operator(ncclRedOp_t op, const DataType& type) {
  switch (op) {
    case ncclSum:
      return ReduceOp::sum;
    case ncclProd:
      return ReduceOp::prod;
    case ncclMax:
      return ReduceOp::max;
    case ncclMin:
      return ReduceOp::min;
    case ncclAvg:
      return type.is_floating ? ReduceOp::avg : ReduceOp::sum;
    default:
      throw InvalidArgument("expected an operator of this communicator, but got number " +
                            std::to_string(static_cast<int>(op)));
  }
}

}  // namespace gantry::nccl_api
