// Included before llm.c's source. CUDA 13 has another cudaMemAdvise than the one llm.c was written
// for, and llm.c keeps one number in managed memory. Pinned memory of the host serves as well, and
// needs no page faults of GPUs.
#pragma once

#include <cuda_runtime.h>

namespace llm_c {

inline cudaError_t advise(const void*, size_t, cudaMemoryAdvise, int) {
  return cudaErrorNotSupported;
}

// llm.c has room for one number there, and reduces four.
template <class T>
cudaError_t allocate(T** memory, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(memory), 4 * bytes);
}

inline cudaError_t free_any(void* memory) {
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  if (error != cudaSuccess) return error;
  return attributes.type == cudaMemoryTypeHost ? cudaFreeHost(memory) : cudaFree(memory);
}

}  // namespace llm_c

#define cudaMemAdvise(...) llm_c::advise(__VA_ARGS__)
#define cudaMallocManaged(memory, bytes) llm_c::allocate(memory, bytes)
#define cudaFree(memory) llm_c::free_any(memory)
