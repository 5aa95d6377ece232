#include "kernels/cuda/ordering/sort_positions.hpp"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"

namespace gantry::kernels::cuda {

namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

PositionSort::PositionSort(std::int64_t count, std::int64_t largest, void* memory)
    : count_(static_cast<std::uint32_t>(count)),
      keys_bytes_(aligned(count_ * sizeof(std::uint64_t))),
      positions_bytes_(aligned(count_ * sizeof(std::uint32_t))),
      memory_(static_cast<char*>(memory)) {
  while (bits_ < 64 && (static_cast<std::uint64_t>(largest) >> bits_) != 0) ++bits_;
  const std::uint64_t* const no_keys = nullptr;
  const std::uint32_t* const no_positions = nullptr;
  (void)cub::DeviceRadixSort::SortPairs(nullptr, cub_bytes_, no_keys,
                                        static_cast<std::uint64_t*>(nullptr), no_positions,
                                        static_cast<std::uint32_t*>(nullptr), count_, 0, bits_);
}

std::size_t PositionSort::bytes() const {
  return 2 * keys_bytes_ + 2 * positions_bytes_ + cub_bytes_;
}

std::uint64_t* PositionSort::keys() const { return reinterpret_cast<std::uint64_t*>(memory_); }

std::uint32_t* PositionSort::positions() const {
  return reinterpret_cast<std::uint32_t*>(at(2 * keys_bytes_));
}

const std::uint64_t* PositionSort::sorted_keys() const {
  return reinterpret_cast<const std::uint64_t*>(at(keys_bytes_));
}

const std::uint32_t* PositionSort::sorted_positions() const {
  return reinterpret_cast<const std::uint32_t*>(at(2 * keys_bytes_ + positions_bytes_));
}

void PositionSort::run(const char* op, void* stream) const {
  std::size_t cub_bytes = cub_bytes_;
  const cudaError_t status = cub::DeviceRadixSort::SortPairs(
      at(2 * keys_bytes_ + 2 * positions_bytes_), cub_bytes,
      static_cast<const std::uint64_t*>(keys()), const_cast<std::uint64_t*>(sorted_keys()),
      static_cast<const std::uint32_t*>(positions()),
      const_cast<std::uint32_t*>(sorted_positions()), count_, 0, bits_,
      static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error(op, stream, status);
  }
}

}  // namespace gantry::kernels::cuda
