// Sleeping on one word of memory, without any order between sleeper and waker.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <climits>
#include <cstdint>
#include <ctime>

namespace gantry::sim {

// Note [Order only through queues and events]
// A simulated run under ThreadSanitizer must report a cross-stream wait that the user's program
// lacks. ThreadSanitizer derives order from every lock and every acquire/release pair. The
// simulator therefore creates such a pair only where the program asks for order: from the
// submitting host thread to its task, and from a finished task to a successful query, synchronize
// or event wait. All other communication between host and stream threads uses relaxed atomics,
// fences (without meaning for ThreadSanitizer) or futex system calls (invisible to it). Condition
// variables, semaphores and shared_ptr counts would order unrelated tasks and hide races.

inline long futex_call(const void* word, int operation, std::uint32_t value,
                       const timespec* timeout) {
  return ::syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

/// Sleeps while the word holds `expected`; may return early for no reason.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  futex_call(&word, FUTEX_WAIT_PRIVATE, expected, nullptr);
}

/// As futex_wait, on the low half of a 64-bit word.
inline void futex_wait_low(const std::atomic<std::uint64_t>& word, std::uint64_t expected) {
  static_assert(std::endian::native == std::endian::little);
  futex_call(&word, FUTEX_WAIT_PRIVATE, static_cast<std::uint32_t>(expected), nullptr);
}

/// Wakes every thread of this process that sleeps on the word.
inline void futex_wake_all(const void* word) {
  futex_call(word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

/// Between processes: sleeps while the word holds `expected`, at most `timeout_ms`.
inline void futex_wait_shared(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                              int timeout_ms) {
  const timespec timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  futex_call(&word, FUTEX_WAIT, expected, &timeout);
}

/// Between processes: wakes every thread that sleeps on the word.
inline void futex_wake_all_shared(const void* word) {
  futex_call(word, FUTEX_WAKE, INT_MAX, nullptr);
}

/// A full barrier for the processor that ThreadSanitizer reads no order from.
inline void full_fence() { __sync_synchronize(); }

}  // namespace gantry::sim
