#include "device/cuda/conditions/set_condition.cuh"

namespace gantry::cuda {
namespace {

__global__ void set_condition(cudaGraphConditionalHandle handle, const unsigned char* flag,
                              unsigned bytes, StopWords stops) {
  unsigned any = 0;
  for (unsigned i = 0; i < bytes; ++i) any |= flag[i];
  unsigned stopped = 0;
  for (int i = 0; i < stops.count; ++i) {
    stopped |= *static_cast<const volatile std::uint32_t*>(stops.words[i]);
  }
  cudaGraphSetConditional(handle, any != 0 && stopped == 0 ? 1 : 0);
}

}  // namespace

void launch_set_condition(cudaGraphConditionalHandle handle, const void* flag,
                          std::size_t flag_bytes, const StopWords& stops, cudaStream_t stream) {
  set_condition<<<1, 1, 0, stream>>>(handle, static_cast<const unsigned char*>(flag),
                                     static_cast<unsigned>(flag_bytes), stops);
}

}  // namespace gantry::cuda
