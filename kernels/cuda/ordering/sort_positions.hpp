#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::kernels::cuda {

// A stable sort of positions by keys, in scratch memory: two arrays of keys, two of positions,
// CUB's storage. Fewer than 2^31 positions.
class PositionSort {
 public:
  // Keys are 0 … `largest`. Without memory only bytes() may be called.
  PositionSort(std::int64_t count, std::int64_t largest, void* memory);

  [[nodiscard]] std::size_t bytes() const;
  // Inputs of run(), which the caller writes.
  [[nodiscard]] std::uint64_t* keys() const;
  [[nodiscard]] std::uint32_t* positions() const;
  void run(const char* op, void* stream) const;
  // Results of run().
  [[nodiscard]] const std::uint64_t* sorted_keys() const;
  [[nodiscard]] const std::uint32_t* sorted_positions() const;

 private:
  [[nodiscard]] char* at(std::size_t bytes) const { return memory_ + bytes; }

  std::uint32_t count_;
  int bits_ = 1;
  std::size_t keys_bytes_;
  std::size_t positions_bytes_;
  std::size_t cub_bytes_ = 0;
  char* memory_;
};

}  // namespace gantry::kernels::cuda
