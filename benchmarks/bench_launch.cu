// The least that a call can cost the host: the launch of a kernel by the CUDA runtime.
#include <cuda_runtime.h>

#include "benchmarks/timing.hpp"

namespace gantry::benchmarks {
namespace {

__global__ void add_sixteen(const float* a, const float* b, float* out) {
  out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

}  // namespace

void register_launch() {
  if (platform() != Platform::cuda) return;
  add("dispatch/bare_launch", [](benchmark::State& state) {
    const TensorOptions options{.dtype = f32, .device = Device::cuda(0)};
    const Tensor a = ones({16}, options);
    const Tensor out = empty({16}, options);
    const auto stream = static_cast<cudaStream_t>(Stream::current(Device::cuda(0)).native_handle());
    time_host(state, [&] {
      add_sixteen<<<1, 16, 0, stream>>>(a.data_ptr<float>(), a.data_ptr<float>(),
                                        out.data_ptr<float>());
    });
  });
}

}  // namespace gantry::benchmarks
