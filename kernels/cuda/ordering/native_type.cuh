// CUDA's own types of elements, whose order and equality CUB has.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include <gantry/core/dtype.hpp>

namespace gantry::kernels::cuda {

// Calls f(TypeTag<T>{}) with the type of the elements of `dtype`, which computes; u8 for bool.
template <class F>
void dispatch_native(DType dtype, const F& f) {
  switch (dtype) {
    case DType::bool_:
    case DType::u8:
      return f(TypeTag<std::uint8_t>{});
    case DType::i8:
      return f(TypeTag<std::int8_t>{});
    case DType::i16:
      return f(TypeTag<std::int16_t>{});
    case DType::i32:
      return f(TypeTag<std::int32_t>{});
    case DType::i64:
      return f(TypeTag<std::int64_t>{});
    case DType::f16:
      return f(TypeTag<__half>{});
    case DType::bf16:
      return f(TypeTag<__nv_bfloat16>{});
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f64:
      return f(TypeTag<double>{});
    default:
      return;
  }
}

}  // namespace gantry::kernels::cuda
