// Included before a client's source whose kernels are loops over threads: the host runs them, in
// the order of their stream, as one block of one thread.
#pragma once

#include <cuda_runtime.h>

#include <tuple>

#define __launch_bounds__(...)

namespace {

const uint3 threadIdx{0, 0, 0};
const uint3 blockIdx{0, 0, 0};
const dim3 blockDim{1, 1, 1};
const dim3 gridDim{1, 1, 1};

// Enqueues `kernel`, a function of Args, with copies of the arguments that `args` points to.
template <class... Args>
cudaError_t launch_on_host(const void* kernel, void** args, cudaStream_t stream) {
  struct Call {
    void (*kernel)(Args...);
    std::tuple<Args...> args;
  };
  int next = 0;
  auto* call = new Call{reinterpret_cast<void (*)(Args...)>(const_cast<void*>(kernel)),
                        std::tuple<Args...>{*static_cast<Args*>(args[next++])...}};
  const auto run = [](void* data) {
    auto* const one = static_cast<Call*>(data);
    std::apply(one->kernel, one->args);
    delete one;
  };
  const cudaError_t error = cudaLaunchHostFunc(stream, run, call);
  if (error != cudaSuccess) delete call;
  return error;
}
using HostLaunch = cudaError_t (*)(const void* kernel, void** args, cudaStream_t stream);

}  // namespace
