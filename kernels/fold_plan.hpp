#pragma once

#include <cstdint>

#include "kernels/fold.hpp"

namespace gantry::kernels {

// A fold as a kernel takes it: by value, the inputs' addresses included. A POD.
struct FoldPlan {
  FoldOp op = FoldOp::sum;
  DType dtype = DType::f32;
  std::int32_t input_count = 0;
  std::int64_t count = 0;
  double divisor = 1;
  void* out = nullptr;
  const void* inputs[kMaxFoldInputs] = {};
};

namespace host {
void fold(const FoldPlan& plan);
}  // namespace host

namespace cuda {
void fold(void* stream, const FoldPlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
