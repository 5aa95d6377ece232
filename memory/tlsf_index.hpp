// Free blocks by size, found in constant time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory/heap_block.hpp"
#include "memory/size_policy.hpp"

namespace gantry::memory {

/// Two-level segregated fit: one bin per power of two and 32nd part of it, with bitmaps that tell
/// which are not empty, so a fit is found with two bit scans. (Masmano et al., "TLSF: a new dynamic
/// memory allocator for real-time systems", ECRTS 2004.) Bins are at most 1/32 wide, which bounds
/// what a good fit wastes. The links live in HeapBlock; nothing is allocated.
/// Not thread-safe: the owner's lock protects it.
class TlsfIndex {
 public:
  void insert(HeapBlock& block) noexcept {
    const Bin bin = bin_of(block.bytes);
    HeapBlock*& head = heads_[bin.first][bin.second];
    block.previous_in_bin = nullptr;
    block.next_in_bin = head;
    if (head != nullptr) head->previous_in_bin = &block;
    head = &block;
    first_ |= std::uint64_t{1} << bin.first;
    second_[bin.first] |= std::uint32_t{1} << bin.second;
  }

  void remove(HeapBlock& block) noexcept {
    if (block.next_in_bin != nullptr) block.next_in_bin->previous_in_bin = block.previous_in_bin;
    if (block.previous_in_bin != nullptr) {
      block.previous_in_bin->next_in_bin = block.next_in_bin;
      return;
    }
    const Bin bin = bin_of(block.bytes);
    heads_[bin.first][bin.second] = block.next_in_bin;
    if (block.next_in_bin != nullptr) return;
    second_[bin.first] &= ~(std::uint32_t{1} << bin.second);
    if (second_[bin.first] == 0) first_ &= ~(std::uint64_t{1} << bin.first);
  }

  /// A block of at least `bytes` from the smallest bin that has one; nullptr if there is none.
  [[nodiscard]] HeapBlock* find(std::size_t bytes) const noexcept {
    return find_if(bytes, [](const HeapBlock&) { return true; });
  }

  /// As find(), among the blocks that `accept`. Looks at a bounded number of blocks of each bin, so
  /// it may miss one that is deep in a long bin.
  template <class Accept>
  [[nodiscard]] HeapBlock* find_if(std::size_t bytes, Accept&& accept) const noexcept {
    Bin bin = bin_of(bytes);
    int probes = 0;
    for (HeapBlock* block = heads_[bin.first][bin.second]; block != nullptr && probes < kProbes;
         block = block->next_in_bin, ++probes) {
      if (block->bytes >= bytes && accept(*block)) return block;
    }
    while (next_bin(bin)) {
      probes = 0;
      for (HeapBlock* block = heads_[bin.first][bin.second]; block != nullptr && probes < kProbes;
           block = block->next_in_bin, ++probes) {
        if (accept(*block)) return block;
      }
    }
    return nullptr;
  }

  /// Calls `visit(HeapBlock&)` for every block of at least `bytes`, rounded down to a bin, from
  /// small to large; stops when it returns false. `visit` may remove the block that it was given.
  template <class Visit>
  void for_each(std::size_t bytes, Visit&& visit) const {
    Bin bin = bin_of(bytes);
    do {
      for (HeapBlock* block = heads_[bin.first][bin.second]; block != nullptr;) {
        HeapBlock* following = block->next_in_bin;
        if (!visit(*block)) return;
        block = following;
      }
    } while (next_bin(bin));
  }

  [[nodiscard]] bool empty() const { return first_ == 0; }
  /// A block of the largest bin, nullptr if there is none: within 1/32 of the largest block.
  [[nodiscard]] HeapBlock* largest() const noexcept {
    if (empty()) return nullptr;
    const auto first = static_cast<std::size_t>(std::bit_width(first_) - 1);
    const auto second = static_cast<std::size_t>(std::bit_width(second_[first]) - 1);
    HeapBlock* best = heads_[first][second];
    for (HeapBlock* block = best; block != nullptr; block = block->next_in_bin) {
      if (block->bytes > best->bytes) best = block;
    }
    return best;
  }

 private:
  static constexpr std::size_t kSecondBits = 5;
  static constexpr std::size_t kSecond = std::size_t{1} << kSecondBits;
  static constexpr std::size_t kFirst = 44;  ///< up to 2^52 bytes
  static constexpr int kProbes = 8;

  struct Bin {
    std::size_t first;
    std::size_t second;
  };

  static Bin bin_of(std::size_t bytes) noexcept {
    const std::size_t grains = bytes / kBlockGrain;
    if (grains < kSecond) return {0, grains};
    const auto top = static_cast<std::size_t>(std::bit_width(grains)) - 1;
    const std::size_t first = top - kSecondBits + 1;
    if (first >= kFirst) return {kFirst - 1, kSecond - 1};
    return {first, (grains >> (top - kSecondBits)) & (kSecond - 1)};
  }

  // The next bin after `bin` that is not empty.
  bool next_bin(Bin& bin) const noexcept {
    const std::uint32_t same =
        bin.second + 1 < kSecond ? second_[bin.first] & (~std::uint32_t{0} << (bin.second + 1)) : 0;
    if (same != 0) {
      bin.second = static_cast<std::size_t>(std::countr_zero(same));
      return true;
    }
    const std::uint64_t above = first_ & (~std::uint64_t{0} << (bin.first + 1));
    if (above == 0) return false;
    bin.first = static_cast<std::size_t>(std::countr_zero(above));
    bin.second = static_cast<std::size_t>(std::countr_zero(second_[bin.first]));
    return true;
  }

  std::uint64_t first_ = 0;
  std::array<std::uint32_t, kFirst> second_{};
  std::array<std::array<HeapBlock*, kSecond>, kFirst> heads_{};
};

}  // namespace gantry::memory
