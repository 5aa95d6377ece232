#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::kernels::cuda {

// A stable sort of positions, or of other words of 4 bytes, by keys, in scratch memory. Fewer than
// 2^31 positions. Keys are u32 if that suffices: half of the memory traffic is theirs.
class PositionSort {
 public:
  // Keys are 0 … `largest`. Without memory only bytes() may be called. With `has_positions` false
  // the caller has the words elsewhere. The lowest `ignored_bits` of the keys do not count.
  PositionSort(std::int64_t count, std::int64_t largest, void* memory, bool has_positions = true,
               int ignored_bits = 0);

  [[nodiscard]] std::size_t bytes() const;

  // Calls f(keys, positions, sorted_keys, sorted_positions) with pointers to u32 or u64 keys. The
  // caller writes the first two before run(), which writes the others. A caller that sorts by
  // itself writes the others instead.
  template <class F>
  void visit(const F& f) const {
    auto* const positions = reinterpret_cast<std::uint32_t*>(at(2 * keys_bytes_));
    auto* const sorted = reinterpret_cast<std::uint32_t*>(at(2 * keys_bytes_ + positions_bytes_));
    if (is_narrow_) {
      f(reinterpret_cast<std::uint32_t*>(memory_), positions,
        reinterpret_cast<std::uint32_t*>(at(keys_bytes_)), sorted);
    } else {
      f(reinterpret_cast<std::uint64_t*>(memory_), positions,
        reinterpret_cast<std::uint64_t*>(at(keys_bytes_)), sorted);
    }
  }

  // `words`: what is sorted; null for the positions.
  void run(const char* op, void* stream, const std::uint32_t* words = nullptr) const;

 private:
  [[nodiscard]] char* at(std::size_t bytes) const { return memory_ + bytes; }
  template <class Key>
  int sort(void* storage, std::size_t& bytes, const std::uint32_t* words, void* stream) const;

  std::uint32_t count_;
  bool is_narrow_;
  int ignored_bits_;
  int bits_ = 1;
  std::size_t keys_bytes_;
  std::size_t positions_bytes_;  // of the unsorted positions
  std::size_t sorted_bytes_;
  std::size_t cub_bytes_ = 0;
  char* memory_;
};

}  // namespace gantry::kernels::cuda
