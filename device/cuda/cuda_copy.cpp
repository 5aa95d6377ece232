#include <fmt/format.h>

#include <vector>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace gantry {

namespace {

cudaStream_t native(NativeStream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

// The runtime wants a current context even for a stream that knows its own: see Note [Driver API].

void CudaDriver::copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) {
  if (bytes == 0) return;
  const cuda::ContextScope scope(stream.device);
  GANTRY_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(stream)),
                    fmt::format("copying {} bytes", bytes), stream);
}

void CudaDriver::copy_peer(void* dst, int dst_device, const void* src, int src_device,
                           std::size_t bytes, NativeStream stream) {
  if (bytes == 0) return;
  const cuda::ContextScope scope(stream.device);
  // A capture takes no cudaMemcpyPeerAsync, but unified addresses say as much.
  if (is_capturing(stream)) return copy(dst, src, bytes, stream);
  GANTRY_CUDA_CHECK(
      cudaMemcpyPeerAsync(dst, dst_device, src, src_device, bytes, native(stream)),
      fmt::format("copying {} bytes from cuda:{} to cuda:{}", bytes, src_device, dst_device),
      stream);
}

// A batch needs a stream of its own kind: neither the legacy one nor one that is being captured.
void CudaDriver::copy_batch(std::span<const CopyRegion> runs, NativeStream stream) {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
  for (const CopyRegion& run : runs) {
    if (run.bytes == 0) continue;  // which CUDA refuses
    to.push_back(run.to);
    from.push_back(run.from);
    bytes.push_back(run.bytes);
  }
  const bool singly = to.size() < 2 || stream.handle == nullptr || is_capturing(stream);
  if (singly) {
    for (std::size_t i = 0; i < to.size(); ++i) copy(to[i], from[i], bytes[i], stream);
    return;
  }
  const cuda::ContextScope scope(stream.device);
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;  // of the runs with these attributes
  GANTRY_CUDA_CHECK(cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), to.size(),
                                         &attributes, &first, 1, native(stream)),
                    fmt::format("copying {} runs", to.size()), stream);
}

void CudaDriver::fill(void* dst, std::uint8_t value, std::size_t bytes, NativeStream stream) {
  if (bytes == 0) return;
  const cuda::ContextScope scope(stream.device);
  GANTRY_CUDA_CHECK(cudaMemsetAsync(dst, value, bytes, native(stream)),
                    fmt::format("filling {} bytes", bytes), stream);
}

}  // namespace gantry
