// Fences between two threads of which one pays nothing.
#pragma once

#include <atomic>

namespace gantry::memory {

/// Orders a store before a later load on two sides: a side that stores A and then loads B, and one
/// that stores B and then loads A, cannot both miss each other's store. The frequent side calls
/// light(), which costs nothing; the rare one calls heavy(), which puts a full barrier into every
/// running thread of the process by membarrier(2). Where the kernel lacks it, both pay for a fence.
/// (P1202, "Asymmetric fences".)
class AsymmetricFence {
 public:
  AsymmetricFence() noexcept : fences_(!has_membarrier()) {}

  void light() const noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (fences_) [[unlikely]] {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  static void heavy() noexcept;

 private:
  static bool has_membarrier() noexcept;

  const bool fences_;
};

}  // namespace gantry::memory
