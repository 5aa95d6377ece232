#pragma once

#include <cstdint>
#include <span>

#include "kernels/peers/nary.hpp"

namespace gantry::kernels {

// The parameters of nary(), which a kernel takes by value. A POD.
struct NaryPlan {
  NaryOp op = NaryOp::sum;
  DType dtype = DType::f32;
  std::int32_t input_count = 0;
  std::int32_t out_count = 0;
  std::int64_t count = 0;
  double divisor = 1;
  void* outs[kMaxNaryInputs] = {};
  const void* inputs[kMaxNaryInputs] = {};
};

// The parameters of nary_batched(). The arrays belong to the caller.
struct NaryBatchPlan {
  NaryOp op = NaryOp::sum;
  DType dtype = DType::f32;
  std::int32_t input_count = 0;
  double divisor = 1;
  std::span<const NaryItem> items;
  std::span<const void* const> inputs;  // of item 0, of item 1, …
};

namespace host {
void nary(const NaryPlan& plan);
void nary_batched(const NaryBatchPlan& plan);
}  // namespace host

namespace cuda {
void nary(void* stream, const NaryPlan& plan);
void nary_batched(void* stream, const NaryBatchPlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
