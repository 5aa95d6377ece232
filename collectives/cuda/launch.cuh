// Instantiations of collective kernels over dtypes.
#pragma once

#include <gantry/core/dtype.hpp>

#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"
#include "kernels/cuda/launch.cuh"

namespace gantry::protocol::cuda {

template <class Run>
void for_each_element(Run&& run) {
  run(TypeTag<Moved>{});
  for (int i = 0; i < kDTypeCount; ++i) kernels::dispatch_nary(static_cast<DType>(i), run);
}

template <class Kernel>
void preload_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace gantry::protocol::cuda
