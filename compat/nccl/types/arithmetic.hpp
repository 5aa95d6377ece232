// Elementwise work around a reduction, for types and operators that Communicator does not have.
#pragma once

#include <cstdint>

#include <gantry/streams/stream.hpp>

#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

// The factor of a PreMulSum operator: in memory of the device, or a value of the host.
struct Factor {
  const void* on_device = nullptr;
  std::uint64_t bits = 0;  // the bytes of the value, if `on_device` is null
};

// All enqueue one kernel on `stream`. Inputs and outputs have `count` elements, and may be the same
// memory if their elements have equal sizes.

// Multiplies elements of `type`. Whole numbers wrap; 16-bit and 8-bit floats are rounded once.
void multiply(const Stream& stream, const void* in, void* out, std::int64_t count,
              ncclDataType_t type, const Factor& factor);
// Divides whole numbers in place by a positive number, toward zero.
void divide(const Stream& stream, void* data, std::int64_t count, ncclDataType_t type,
            std::int64_t divisor);
// Converts 8-bit floats to f32, which has all of them.
void widen(const Stream& stream, const void* in, float* out, std::int64_t count,
           ncclDataType_t type);
// Rounds f32 to 8-bit floats: to nearest, ties to even. Numbers beyond the largest become it.
void narrow(const Stream& stream, const float* in, void* out, std::int64_t count,
            ncclDataType_t type);

}  // namespace gantry::nccl_api
