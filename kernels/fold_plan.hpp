#pragma once

#include <cstdint>
#include <span>

#include "kernels/fold.hpp"

namespace gantry::kernels {

// A fold as a kernel takes it: by value, the inputs' addresses included. A POD.
struct FoldPlan {
  FoldOp op = FoldOp::sum;
  DType dtype = DType::f32;
  std::int32_t input_count = 0;
  std::int32_t out_count = 0;
  std::int64_t count = 0;
  double divisor = 1;
  void* outs[kMaxFoldInputs] = {};
  const void* inputs[kMaxFoldInputs] = {};
};

// Several folds; the arrays belong to the caller.
struct FoldRunsPlan {
  FoldOp op = FoldOp::sum;
  DType dtype = DType::f32;
  std::int32_t input_count = 0;
  double divisor = 1;
  std::span<const FoldRun> runs;
  std::span<const void* const> inputs;  // of run 0, of run 1, …
};

namespace host {
void fold(const FoldPlan& plan);
void fold_runs(const FoldRunsPlan& plan);
}  // namespace host

namespace cuda {
void fold(void* stream, const FoldPlan& plan);
void fold_runs(void* stream, const FoldRunsPlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
