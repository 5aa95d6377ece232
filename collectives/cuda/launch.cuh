// Instantiations of collective kernels over dtypes.
#pragma once

#include <gantry/core/dtype.hpp>

#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"
#include "kernels/cuda/launch.cuh"

namespace gantry::protocol::cuda {

// Calls run(TypeTag<T>) for the elements that are combined; Moved if they are not.
template <class Run>
void with_element(const ReducePlan& how, Run&& run) {
  if (how.copies) return run(TypeTag<Moved>{});
  dispatch(how.dtype, run);
}

template <class Run>
void for_each_element(Run&& run) {
  run(TypeTag<Moved>{});
  for (int i = 0; i < kDTypeCount; ++i) dispatch(static_cast<DType>(i), run);
}

template <class Kernel>
void preload_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace gantry::protocol::cuda
