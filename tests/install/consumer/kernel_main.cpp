// A user's program with a kernel of its own. On real GPUs only: simulated devices run no CUDA
// kernels.
#include <cuda_runtime_api.h>

#include <gantry/gantry.hpp>
#include <iostream>

#include "twice.hpp"

int main() {
  if (gantry::platform() != gantry::Platform::cuda) {
    std::cout << "no GPU\n";
    return 0;
  }
  const gantry::Device device("cuda:0");
  gantry::Tensor numbers = gantry::arange(5, {.dtype = gantry::f32, .device = device});
  twice(numbers);  // behind arange, in the same stream
  std::cout << "default stream " << numbers.sum().item<float>();

  cudaStream_t foreign = nullptr;
  if (cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking) != cudaSuccess) return 1;
  {
    const gantry::Stream stream = gantry::Stream::external(foreign, device);
    stream.wait(gantry::Stream::default_stream(device));
    const gantry::StreamGuard guard(stream);
    twice(numbers);
    std::cout << ", a stream of mine " << numbers.sum().item<float>() << "\n";
    stream.synchronize();
  }
  gantry::synchronize(device);
  return cudaStreamDestroy(foreign) == cudaSuccess ? 0 : 1;
}
