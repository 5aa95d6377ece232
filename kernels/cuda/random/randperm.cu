#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/impl/random.inl"
#include "kernels/random/cuda_random.hpp"

namespace gantry::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    key_kernel(std::int64_t n, functors::SortKey key, std::uint64_t* keys,
               std::int64_t* positions) {
  if (key.stream.is_replayed()) key.stream = key.stream.resolved();
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    keys[i] = key(i);
    positions[i] = i;
  }
}

void check(void* stream, cudaError_t status) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_error("randperm", stream, status);
}

// The workspace has three arrays of 8-byte elements and then CUB's storage. Bytes of one array:
std::size_t array_bytes(std::int64_t n) {
  return (static_cast<std::size_t>(n) * sizeof(std::uint64_t) + 255) / 256 * 256;
}

std::size_t sort_bytes(std::int64_t n) {
  std::size_t bytes = 0;
  check(nullptr,
        cub::DeviceRadixSort::SortPairs(nullptr, bytes, static_cast<const std::uint64_t*>(nullptr),
                                        static_cast<std::uint64_t*>(nullptr),
                                        static_cast<const std::int64_t*>(nullptr),
                                        static_cast<std::int64_t*>(nullptr), n));
  return bytes;
}

}  // namespace

std::size_t randperm_workspace(std::int64_t n) { return 3 * array_bytes(n) + sort_bytes(n); }

void randperm(void* stream, const TensorRef& out, RandomPosition at, void* workspace) {
  const std::int64_t n = out.numel();
  auto* base = static_cast<char*>(workspace);
  auto* keys = reinterpret_cast<std::uint64_t*>(base);
  auto* sorted_keys = reinterpret_cast<std::uint64_t*>(base + array_bytes(n));
  auto* positions = reinterpret_cast<std::int64_t*>(base + 2 * array_bytes(n));
  launch("randperm", stream, blocks_for(n), kThreads, 0, key_kernel, n, functors::SortKey(at), keys,
         positions);
  std::size_t bytes = sort_bytes(n);
  check(stream,
        cub::DeviceRadixSort::SortPairs(
            base + 3 * array_bytes(n), bytes, static_cast<const std::uint64_t*>(keys), sorted_keys,
            static_cast<const std::int64_t*>(positions), static_cast<std::int64_t*>(out.data), n, 0,
            64, static_cast<cudaStream_t>(stream)));
}

}  // namespace gantry::kernels::cuda
