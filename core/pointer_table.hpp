// From addresses to objects.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/assert.hpp"

namespace gantry {

/// A hash table in shards, each a cache line with a lock and a few entries; what does not fit goes
/// to a table of open addressing beside it. So a program with some thousands of them touches one
/// line for each, and nothing allocates per entry. The locks are held for some nanoseconds, so
/// waiting for one spins.
/// Thread safety: every member may be called from any thread.
template <class Object>
class PointerTable {
 public:
  /// Throws: std::bad_alloc.
  void insert(void* data, Object& object) {
    Shard& shard = shard_of(data);
    const std::lock_guard lock(shard.mutex);
    for (Entry& entry : shard.near) {
      if (entry.data != nullptr) continue;
      entry = {data, &object};
      return;
    }
    if (shard.far == nullptr) shard.far = std::make_unique<OpenTable>();
    shard.far->insert({data, &object});
  }
  /// The object that was inserted for `data`, which is forgotten; nullptr if there is none.
  [[nodiscard]] Object* take(void* data) noexcept {
    Shard& shard = shard_of(data);
    const std::lock_guard lock(shard.mutex);
    for (Entry& entry : shard.near) {
      if (entry.data != data) continue;
      entry.data = nullptr;
      return entry.object;
    }
    return shard.far == nullptr ? nullptr : shard.far->take(data);
  }

 private:
  struct Entry {
    void* data = nullptr;
    Object* object = nullptr;
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

  class OpenTable {
   public:
    // Throws: std::bad_alloc; nothing has changed then.
    void insert(Entry entry) {
      if (2 * (count_ + 1) > entries_.size()) grow();
      put(entry);
      ++count_;
    }
    Object* take(void* data) noexcept {
      if (entries_.empty()) return nullptr;
      std::size_t at = home(data);
      while (entries_[at].data != data) {
        if (entries_[at].data == nullptr) return nullptr;
        at = next(at);
      }
      Object* object = entries_[at].object;
      erase(at);
      GANTRY_ASSERT(count_ > 0, "more addresses leave a table than entered it");
      --count_;
      return object;
    }

   private:
    [[nodiscard]] std::size_t next(std::size_t at) const {
      return (at + 1) & (entries_.size() - 1);
    }
    [[nodiscard]] std::size_t home(const void* data) const {
      return (hash(data) >> kShardBits) & (entries_.size() - 1);
    }
    void put(Entry entry) {
      GANTRY_ASSERT(entry.data != nullptr, "an empty entry is inserted");
      std::size_t at = home(entry.data);
      while (entries_[at].data != nullptr) at = next(at);
      entries_[at] = entry;
    }
    // Moves later entries of the run back, so that no gap hides them.
    void erase(std::size_t hole) {
      const std::size_t mask = entries_.size() - 1;
      for (std::size_t at = next(hole); entries_[at].data != nullptr; at = next(at)) {
        if (((at - home(entries_[at].data)) & mask) < ((at - hole) & mask)) continue;
        entries_[hole] = entries_[at];
        hole = at;
      }
      entries_[hole] = {};
    }
    void grow() {
      constexpr std::size_t kFirst = 16;
      std::vector<Entry> before(entries_.empty() ? kFirst : 2 * entries_.size());
      before.swap(entries_);
      for (const Entry& entry : before) {
        if (entry.data != nullptr) put(entry);
      }
    }

    std::vector<Entry> entries_;  // a power of two of them
    std::size_t count_ = 0;
  };
  struct alignas(64) Shard {
    SpinLock mutex;
    std::unique_ptr<OpenTable> far;
    std::array<Entry, 3> near;
  };
  static_assert(sizeof(Shard) == 64);

  static constexpr int kShardBits = 12;

  // Fibonacci hashing: addresses differ in their middle bits.
  static std::uint64_t hash(const void* data) {
    return (reinterpret_cast<std::uintptr_t>(data) >> 8) * 0x9e3779b97f4a7c15u >> 16;
  }
  [[nodiscard]] Shard& shard_of(const void* data) { return shards_[hash(data) % shards_.size()]; }

  std::array<Shard, std::size_t{1} << kShardBits> shards_;
};

}  // namespace gantry
