// A program with a kernel, which GPUs run and simulated devices refuse.
#include <cstdio>

namespace {

__global__ void scale(float* values, float factor) { values[threadIdx.x] *= factor; }

}  // namespace

int main() {
  float* values = nullptr;
  if (const cudaError_t made = cudaMalloc(&values, 32 * sizeof(float)); made != cudaSuccess) {
    std::printf("cudaMalloc: %s\n", cudaGetErrorName(made));
    return 3;
  }
  for (int round = 0; round < 2; ++round) {
    scale<<<1, 32>>>(values, 2.0F);
    std::printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
  }
  std::printf("synchronize: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  cudaFree(values);
}
