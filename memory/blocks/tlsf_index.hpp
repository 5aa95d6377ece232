// Free blocks by size, found in constant time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/assert.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/policy/size_policy.hpp"

namespace gantry::memory {

// Note [Random sizes]
// For a program with random sizes, some conditions are unpredictable: whether a bin is empty,
// whether a block is the last one of its bin, whether a word of the bitmap is zero. A mispredicted
// branch costs more than all the arithmetic of the index. So there are no branches on them. Every
// bin ends at the same end block, which fits nothing; its link is written but never read. Bits and
// words are computed without a condition.

/// Two-level segregated fit: an index of free blocks by size.
///
/// Each power of two has 32 bins. A bitmap has a bit for each bin that is not empty, so a fit is
/// found with two bit scans. A bin is at most 1/32 wide, which limits the waste of a good fit. The
/// links are members of HeapBlock, so the index allocates nothing. See Note [Random sizes].
/// (Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004.)
///
/// Not thread-safe: the owner's lock protects it.
class TlsfIndex {
 public:
  /// Blocks of one bin that a search looks at.
  static constexpr int kProbes = 8;

  TlsfIndex() {
    heads_.fill(&end_);
    words_[kWords - 1] = 1;
  }
  TlsfIndex(const TlsfIndex&) = delete;  // blocks point into it
  TlsfIndex& operator=(const TlsfIndex&) = delete;

  void insert(HeapBlock& block) noexcept {
    const std::size_t bin = bin_of(block.bytes);
    HeapBlock* const head = heads_[bin];
    block.bin = static_cast<std::uint16_t>(bin);
    block.link_to_this = &heads_[bin];
    block.next_in_bin = head;
    head->link_to_this = &block.next_in_bin;
    heads_[bin] = &block;
    words_[bin / kWordBits] |= std::uint64_t{1} << (bin % kWordBits);
    top_ |= std::uint32_t{1} << (bin / kWordBits);
  }

  void remove(HeapBlock& block) noexcept {
    const std::size_t bin = block.bin;
    HeapBlock* const next = block.next_in_bin;
    GANTRY_ASSERT(*block.link_to_this == &block, "a block leaves a bin that it is not in");
    *block.link_to_this = next;
    next->link_to_this = block.link_to_this;
    const auto is_empty = static_cast<std::uint64_t>(heads_[bin] == &end_);
    std::uint64_t& word = words_[bin / kWordBits];
    word &= ~(is_empty << (bin % kWordBits));
    top_ &= ~(static_cast<std::uint32_t>(word == 0) << (bin / kWordBits));
  }

  /// Prefetches the blocks that find() compares.
  void prefetch(std::size_t bytes) const noexcept {
    const std::size_t bin = bin_of(bytes);
    __builtin_prefetch(heads_[bin]);
    __builtin_prefetch(heads_[next_bin(bin)]);
  }
  /// A block of at least `bytes`: the first block of the bin of this size, if it is large enough,
  /// else one of the next larger bin. nullptr if there is none; it may miss a block that is deep in
  /// its bin.
  [[nodiscard]] HeapBlock* find(std::size_t bytes) const noexcept {
    const std::size_t bin = bin_of(bytes);
    HeapBlock* const head = heads_[bin];
    HeapBlock* const larger = heads_[next_bin(bin)];
    HeapBlock* const found = head->bytes >= bytes ? head : larger;
    if (found != &end_) [[likely]] {
      return found;
    }
    return find_if(bytes, [](const HeapBlock&) { return true; });
  }

  /// As find(), among the blocks that `accept`. Looks at `most_probes` blocks of each bin, so it
  /// may miss a block that is deeper in a long bin.
  template <class Accept>
  [[nodiscard]] HeapBlock* find_if(std::size_t bytes, Accept&& accept,
                                   int most_probes = kProbes) const noexcept {
    for (std::size_t bin = bin_of(bytes); bin != kNone; bin = next_bin(bin)) {
      int probes = 0;
      for (HeapBlock* block = heads_[bin]; block != &end_ && probes < most_probes;
           block = block->next_in_bin, ++probes) {
        if (block->bytes >= bytes && accept(*block)) return block;
      }
    }
    return nullptr;
  }

  /// Calls `visit(HeapBlock&)` for every block of at least `bytes`, rounded down to a bin, from
  /// small to large bins, until it returns false. `visit` may remove its argument.
  template <class Visit>
  void for_each(std::size_t bytes, Visit&& visit) const {
    for (std::size_t bin = bin_of(bytes); bin != kNone; bin = next_bin(bin)) {
      for (HeapBlock* block = heads_[bin]; block != &end_;) {
        HeapBlock* following = block->next_in_bin;
        if (!visit(*block)) return;
        block = following;
      }
    }
  }

  /// Calls `visit(HeapBlock&)` for every block, from large to small bins, until it returns false.
  template <class Visit>
  void for_each_from_largest(Visit&& visit) const {
    for (std::size_t bin = previous_bin(kNone); bin != kNone; bin = previous_bin(bin)) {
      for (HeapBlock* block = heads_[bin]; block != &end_; block = block->next_in_bin) {
        if (!visit(*block)) return;
      }
    }
  }

  [[nodiscard]] bool empty() const { return top_ == 0; }
  /// Asserts that every block is in the bin of its size, with links that lead to it.
  void verify() const noexcept {
    for (std::size_t bin = 0; bin < heads_.size(); ++bin) {
      const bool is_marked = (words_[bin / kWordBits] >> (bin % kWordBits) & 1) != 0;
      GANTRY_ASSERT(bin == kNone || is_marked == (heads_[bin] != &end_),
                    "the bitmap does not tell which bins have blocks");
      HeapBlock* const* link = &heads_[bin];
      for (const HeapBlock* block = *link; block != &end_; block = *link) {
        GANTRY_ASSERT(block->link_to_this == link, "a free block does not know its link");
        GANTRY_ASSERT(block->bin == bin && bin_of(block->bytes) == bin,
                      "a free block is in another bin than that of its size");
        link = &block->next_in_bin;
      }
    }
  }
  /// A block of the largest bin, nullptr if there is none: within 1/32 of the largest block.
  [[nodiscard]] HeapBlock* largest() const noexcept {
    if (empty()) return nullptr;
    HeapBlock* best = heads_[previous_bin(kNone)];
    for (HeapBlock* block = best; block != &end_; block = block->next_in_bin) {
      if (block->bytes > best->bytes) best = block;
    }
    return best;
  }

 private:
  static constexpr std::size_t kPartBits = 5;
  static constexpr std::size_t kWordBits = 64;
  static constexpr std::size_t kWords = 32;  ///< the last one has no bins but kNone
  static constexpr std::size_t kNone = (kWords - 1) * kWordBits;

  // Sizes in grains below 64 have a bin each, and every 32 bins after them are a power of two.
  static std::size_t bin_of(std::size_t bytes) noexcept {
    const std::size_t grains = bytes / kBlockGrain;
    const auto shift =
        static_cast<std::size_t>(std::bit_width(grains | (std::size_t{1} << kPartBits))) - 1 -
        kPartBits;
    return (shift << kPartBits) + (grains >> shift);
  }

  // The next bin after `bin` that is not empty, kNone if there is none.
  [[nodiscard]] std::size_t next_bin(std::size_t bin) const noexcept {
    const std::size_t here = (bin + 1) / kWordBits;
    const std::uint64_t same = words_[here] & (~std::uint64_t{0} << ((bin + 1) % kWordBits));
    const std::uint32_t above = (top_ & (~std::uint32_t{1} << here)) | kNoneBit;
    const auto there = static_cast<std::size_t>(std::countr_zero(above));
    const std::size_t word = same != 0 ? here : there;
    const std::uint64_t bits = same != 0 ? same : words_[there];
    return word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits));
  }

  // The next smaller bin that is not empty, kNone if there is none.
  [[nodiscard]] std::size_t previous_bin(std::size_t bin) const noexcept {
    std::size_t word = bin / kWordBits;
    std::uint64_t bits = words_[word] & ((std::uint64_t{1} << (bin % kWordBits)) - 1);
    if (bits == 0) {
      const std::uint32_t below = top_ & ((std::uint32_t{1} << word) - 1);
      if (below == 0) return kNone;
      word = static_cast<std::size_t>(std::bit_width(below) - 1);
      bits = words_[word];
    }
    return word * kWordBits + static_cast<std::size_t>(std::bit_width(bits) - 1);
  }

  static constexpr std::uint32_t kNoneBit = std::uint32_t{1} << (kWords - 1);

  std::uint32_t top_ = 0;  ///< which words are not zero
  std::array<std::uint64_t, kWords> words_{};
  HeapBlock end_;                            ///< behind the last block of every bin
  std::array<HeapBlock*, kNone + 1> heads_;  ///< that of kNone is always the end
};

}  // namespace gantry::memory
