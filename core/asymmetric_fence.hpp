// Fences between two threads of which one pays nothing.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace gantry {

/// A pair of fences for two threads that each store one flag and then load the other's.
///
/// One thread stores A and then loads B; the other one stores B and then loads A. With a fence
/// between store and load on both sides, at least one of them sees the other's store. The frequent
/// side calls light(), which costs nothing. The rare side calls heavy(), which puts a full barrier
/// into every running thread of the process, by membarrier(2). Where the kernel lacks that call,
/// both sides pay for a fence. (P1202, "Asymmetric fences".)
struct AsymmetricFence {
  /// False if the frequent side has to pay too: with std::atomic_thread_fence instead of light().
  static bool is_free() noexcept { return has_membarrier(); }
  static void light() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
  static void heavy() noexcept {
    if (has_membarrier()) {
      syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }

 private:
  static bool has_membarrier() noexcept {
    static const bool registered =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    return registered;
  }
};

}  // namespace gantry
