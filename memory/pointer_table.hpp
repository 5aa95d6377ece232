// From the address of a block to its descriptor, for the raw-pointer functions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "memory/heap_block.hpp"

namespace gantry::memory {

/// A hash table with open addressing, in shards with a lock each: dense, so that it stays in the
/// cache, and without an allocation per entry. The locks are held for some nanoseconds, so waiting
/// for one spins.
/// Thread safety: every member may be called from any thread.
class PointerTable {
 public:
  /// Throws: std::bad_alloc.
  void insert(void* data, HeapBlock& block) {
    Shard& shard = shard_of(data);
    const std::lock_guard lock(shard.mutex);
    if (2 * (shard.count + 1) > shard.entries.size()) shard.grow();
    shard.put({data, &block});
    ++shard.count;
  }
  /// The block that was inserted for `data`, which is forgotten; nullptr if there is none.
  [[nodiscard]] HeapBlock* take(void* data) noexcept {
    Shard& shard = shard_of(data);
    const std::lock_guard lock(shard.mutex);
    if (shard.entries.empty()) return nullptr;
    std::size_t at = shard.home(data);
    while (shard.entries[at].data != data) {
      if (shard.entries[at].data == nullptr) return nullptr;
      at = shard.next(at);
    }
    HeapBlock* block = shard.entries[at].block;
    shard.erase(at);
    --shard.count;
    return block;
  }

 private:
  struct Entry {
    void* data = nullptr;
    HeapBlock* block = nullptr;
  };
  class SpinLock {
   public:
    void lock() noexcept {
      while (flag_.test_and_set(std::memory_order_acquire)) {
        for (int i = 0; i < 64 && flag_.test(std::memory_order_relaxed); ++i) {
        }
        if (flag_.test(std::memory_order_relaxed)) std::this_thread::yield();
      }
    }
    void unlock() noexcept { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag flag_;
  };
  struct alignas(64) Shard {
    SpinLock mutex;
    std::vector<Entry> entries;  ///< a power of two of them
    std::size_t count = 0;

    [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & (entries.size() - 1); }
    [[nodiscard]] std::size_t home(const void* data) const {
      return (hash(data) >> 8) & (entries.size() - 1);
    }
    void put(Entry entry) {
      std::size_t at = home(entry.data);
      while (entries[at].data != nullptr) at = next(at);
      entries[at] = entry;
    }
    // Moves later entries of the run back, so that no gap hides them.
    void erase(std::size_t hole) {
      const std::size_t mask = entries.size() - 1;
      for (std::size_t at = next(hole); entries[at].data != nullptr; at = next(at)) {
        if (((at - home(entries[at].data)) & mask) < ((at - hole) & mask)) continue;
        entries[hole] = entries[at];
        hole = at;
      }
      entries[hole] = {};
    }
    void grow() {
      constexpr std::size_t kFirst = 16;
      std::vector<Entry> before(entries.empty() ? kFirst : 2 * entries.size());
      before.swap(entries);
      for (const Entry& entry : before) {
        if (entry.data != nullptr) put(entry);
      }
    }
  };

  // Fibonacci hashing: addresses differ in their middle bits.
  static std::uint64_t hash(const void* data) {
    return (reinterpret_cast<std::uintptr_t>(data) >> 8) * 0x9e3779b97f4a7c15u >> 16;
  }
  [[nodiscard]] Shard& shard_of(const void* data) { return shards_[hash(data) % shards_.size()]; }

  std::array<Shard, 256> shards_;
};

}  // namespace gantry::memory
