#include "kernels/cuda/ordering/sort_positions.hpp"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"

namespace gantry::kernels::cuda {

namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

PositionSort::PositionSort(std::int64_t count, std::int64_t largest, void* memory,
                           bool has_positions, int ignored_bits)
    : count_(static_cast<std::uint32_t>(count)),
      is_narrow_(largest <= UINT32_MAX),
      ignored_bits_(ignored_bits),
      keys_bytes_(aligned(count_ * (is_narrow_ ? sizeof(std::uint32_t) : sizeof(std::uint64_t)))),
      positions_bytes_(has_positions ? aligned(count_ * sizeof(std::uint32_t)) : 0),
      sorted_bytes_(aligned(count_ * sizeof(std::uint32_t))),
      memory_(static_cast<char*>(memory)) {
  while (bits_ < 64 && (static_cast<std::uint64_t>(largest) >> bits_) != 0) ++bits_;
  if (is_narrow_) {
    (void)sort<std::uint32_t>(nullptr, cub_bytes_, nullptr, nullptr);
  } else {
    (void)sort<std::uint64_t>(nullptr, cub_bytes_, nullptr, nullptr);
  }
}

std::size_t PositionSort::bytes() const {
  return 2 * keys_bytes_ + positions_bytes_ + sorted_bytes_ + cub_bytes_;
}

template <class Key>
int PositionSort::sort(void* storage, std::size_t& bytes, const std::uint32_t* words,
                       void* stream) const {
  return cub::DeviceRadixSort::SortPairs(
      storage, bytes, reinterpret_cast<const Key*>(memory_),
      reinterpret_cast<Key*>(at(keys_bytes_)), words,
      reinterpret_cast<std::uint32_t*>(at(2 * keys_bytes_ + positions_bytes_)), count_,
      ignored_bits_, bits_, static_cast<cudaStream_t>(stream));
}

void PositionSort::run(const char* op, void* stream, const std::uint32_t* words) const {
  if (words == nullptr) words = reinterpret_cast<const std::uint32_t*>(at(2 * keys_bytes_));
  void* const storage = at(2 * keys_bytes_ + positions_bytes_ + sorted_bytes_);
  std::size_t bytes = cub_bytes_;
  const int status = is_narrow_ ? sort<std::uint32_t>(storage, bytes, words, stream)
                                : sort<std::uint64_t>(storage, bytes, words, stream);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error(op, stream, static_cast<cudaError_t>(status));
  }
}

}  // namespace gantry::kernels::cuda
