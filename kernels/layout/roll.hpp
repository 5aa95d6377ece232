#pragma once

#include <cstdint>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Rows of `length` words, whose last `front` words move before the others. A POD.
struct RollPlan {
  void* out = nullptr;
  const void* in = nullptr;
  std::int64_t numel = 0;
  std::int64_t length = 0;
  std::int64_t front = 0;
  DType dtype = DType::f32;
};

// Writes the rows of `in`, `length` elements each, to `out` with their last `front` elements first.
// Both are contiguous, of one dtype and apart. front < length.
void roll_rows(const Target& target, const TensorRef& out, const TensorRef& in, std::int64_t length,
               std::int64_t front);

namespace host {
void roll_rows(const RollPlan& plan);
}  // namespace host

namespace cuda {
// Fewer than 2^31 elements.
void roll_rows(void* stream, const RollPlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
