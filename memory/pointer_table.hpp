// From the address of a block to its descriptor, for the raw-pointer functions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/heap_block.hpp"
#include "memory/size_policy.hpp"

namespace gantry::memory {

/// A radix tree over 48-bit addresses in steps of kBlockGrain, like a page table: three loads for a
/// look-up, no lock. A leaf covers 2 MiB.
/// Thread safety: every member may be called from any thread.
class PointerTable {
 public:
  /// Throws: std::bad_alloc.
  void insert(const void* data, HeapBlock& block) {
    leaf_of(data)[low(data)].store(&block, std::memory_order_relaxed);
  }
  /// The block that was inserted for `data`, which is forgotten; nullptr if there is none.
  [[nodiscard]] HeapBlock* take(const void* data) noexcept {
    if (reinterpret_cast<std::uintptr_t>(data) % kBlockGrain != 0) return nullptr;
    const Middle* middle = top_[high(data)].load(std::memory_order_acquire);
    if (middle == nullptr) return nullptr;
    Leaf* leaf = (*middle)[mid(data)].load(std::memory_order_acquire);
    if (leaf == nullptr) return nullptr;
    return (*leaf)[low(data)].exchange(nullptr, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kLowBits = 12;
  static constexpr std::size_t kMiddleBits = 13;
  static constexpr std::size_t kHighBits = 48 - 9 - kLowBits - kMiddleBits;
  static_assert(kBlockGrain == std::size_t{1} << 9);

  using Leaf = std::array<std::atomic<HeapBlock*>, std::size_t{1} << kLowBits>;
  using Middle = std::array<std::atomic<Leaf*>, std::size_t{1} << kMiddleBits>;

  static std::size_t grain(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) / kBlockGrain;
  }
  static std::size_t low(const void* data) {
    return grain(data) & ((std::size_t{1} << kLowBits) - 1);
  }
  static std::size_t mid(const void* data) {
    return (grain(data) >> kLowBits) & ((std::size_t{1} << kMiddleBits) - 1);
  }
  static std::size_t high(const void* data) {
    return (grain(data) >> (kLowBits + kMiddleBits)) & ((std::size_t{1} << kHighBits) - 1);
  }

  // Tables are never freed: another thread may be reading, and addresses come again.
  template <class Table>
  static Table& child(std::atomic<Table*>& slot) {
    if (Table* made = slot.load(std::memory_order_acquire)) return *made;
    auto* fresh = new Table();
    Table* expected = nullptr;
    if (slot.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *expected;
  }
  Leaf& leaf_of(const void* data) { return child(child(top_[high(data)])[mid(data)]); }

  std::array<std::atomic<Middle*>, std::size_t{1} << kHighBits> top_{};
};

}  // namespace gantry::memory
