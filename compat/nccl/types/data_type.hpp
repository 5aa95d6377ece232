// NCCL's types and operators.
#pragma once

#include <cstddef>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

// How the elements of a type are reduced.
enum class Arithmetic {
  own,         // by gantry's dtype
  small_float  // as f32: results saturate, as NCCL's do and those of gantry's 8-bit floats do not
};

// A type of NCCL's.
struct DataType {
  const char* name;  // "u32"
  DType moved_as;    // a dtype of gantry's with as many bytes
  DType reduced_as;  // the dtype in which ranks add
  Arithmetic arithmetic;
  bool is_floating;
};

// Throws: InvalidArgument for a number that is no type.
const DataType& data_type(ncclDataType_t type);
// Bytes of an element. Throws: as data_type().
std::size_t element_bytes(ncclDataType_t type);
// The operator between ranks of a built-in operator; avg of whole numbers is a sum, which is
// divided.
ReduceOp rank_operator(ncclRedOp_t op, const DataType& type);

}  // namespace gantry::nccl_api
