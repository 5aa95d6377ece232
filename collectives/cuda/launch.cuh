// Instantiations of collective kernels over dtypes.
#pragma once

#include <gantry/core/dtype.hpp>

#include "collectives/protocol/launch.hpp"
#include "kernels/cuda/launch.cuh"

namespace gantry::protocol::cuda {

// Calls run(TypeTag<T>) for the elements that are combined; bytes if they are only moved.
template <class Run>
void with_element(const Combination& how, Run&& run) {
  dispatch(how.copies ? DType::u8 : how.dtype, run);
}

template <class Run>
void for_each_element(Run&& run) {
  for (int i = 0; i < kDTypeCount; ++i) dispatch(static_cast<DType>(i), run);
}

template <class Kernel>
void preload_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace gantry::protocol::cuda
