#pragma once

#include <cstdint>
#include <span>

#include "kernels/convert.hpp"
#include "kernels/peers/nary.hpp"

namespace gantry::kernels {

// The operation and the elements of a kernel.
struct NaryKernel {
  NaryOp op = NaryOp::sum;
  DType dtype = DType::f32;
};

// The kernel that reduces elements of `dtype` by `op`. u16, u32 and u64 have the kernels of signed
// words: sums, products and bits are the same.
inline NaryKernel nary_kernel(NaryOp op, DType dtype) {
  const DType words = signed_twin(dtype);
  if (words == dtype) return {op, dtype};
  if (op == NaryOp::min) op = NaryOp::min_unsigned;
  if (op == NaryOp::max) op = NaryOp::max_unsigned;
  return {op, words};
}

// Calls f(TypeTag<T>{}) with the C++ type of an NaryKernel's dtype.
template <class F>
void dispatch_nary(DType dtype, F&& f) {
  dispatch_any(dtype, [&](auto tag) {
    if constexpr (signed_twin(dtype_of<typename decltype(tag)::type>) ==
                  dtype_of<typename decltype(tag)::type>) {
      f(tag);
    }
  });
}

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
