// The FIFO between host threads and the one thread of a stream.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/sim/streams/sim_futex.hpp"

namespace gantry::sim {

/// A queue of pointers: any number of producers, one consumer, bounded.
///
/// The only synchronization is per element: what a producer did before push() happens before the
/// consumer's use of that very element. Producers learn nothing from the consumer or from each
/// other. See Note [Order only through queues and events].
template <class T>
class TaskQueue {
 public:
  /// A full queue makes producers wait, as a GPU's launch queue of about this size does.
  static constexpr std::size_t kCapacity = 1024;

  TaskQueue() : slots_(new std::atomic<T*>[kCapacity]) {
    for (std::size_t i = 0; i < kCapacity; ++i) slots_[i].store(nullptr, std::memory_order_relaxed);
  }

  /// Number of elements that were ever pushed.
  [[nodiscard]] std::uint64_t pushed() const { return head_.load(std::memory_order_relaxed); }

  /// Appends and returns the element's number, counted from 1.
  std::uint64_t push(T* element) {
    const std::uint64_t index = head_.fetch_add(1, std::memory_order_relaxed);
    std::atomic<T*>& slot = slots_[index % kCapacity];
    while (index >= popped_.load(std::memory_order_relaxed) + kCapacity ||
           slot.load(std::memory_order_relaxed) != nullptr) {
      ::usleep(50);
    }
    slot.store(element, std::memory_order_release);
    posted_.fetch_add(1, std::memory_order_release);
    full_fence();
    if (sleeping_.load(std::memory_order_relaxed) != 0) futex_wake_all(&posted_);
    return index + 1;
  }

  /// Removes the oldest element, or sleeps until there is one. For the consumer only.
  T* pop() {
    const std::uint64_t index = popped_.load(std::memory_order_relaxed);
    std::atomic<T*>& slot = slots_[index % kCapacity];
    for (;;) {
      if (slot.load(std::memory_order_relaxed) != nullptr) {
        T* element = slot.load(std::memory_order_acquire);
        slot.store(nullptr, std::memory_order_relaxed);
        popped_.store(index + 1, std::memory_order_relaxed);
        return element;
      }
      const auto taken = static_cast<std::uint32_t>(index);
      if (posted_.load(std::memory_order_relaxed) != taken) {
        ::sched_yield();  // an earlier producer has its place but not filled it yet
        continue;
      }
      // The kernel compares once more, so a push in between is not slept over.
      sleeping_.store(1, std::memory_order_relaxed);
      full_fence();
      futex_wait(posted_, taken);
      sleeping_.store(0, std::memory_order_relaxed);
    }
  }

 private:
  std::unique_ptr<std::atomic<T*>[]> slots_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> posted_{0};
  std::atomic<std::uint32_t> sleeping_{0};
  alignas(64) std::atomic<std::uint64_t> popped_{0};
};

}  // namespace gantry::sim
