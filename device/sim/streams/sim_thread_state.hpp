// The state of a thread of this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

namespace gantry::sim {

/// Number of the calling thread.
[[nodiscard]] pid_t this_thread_number();

/// The present work of a thread. A thread that waits for a processor computes.
enum class ThreadState : std::uint8_t { computes, sleeps, ended };
[[nodiscard]] ThreadState state_of(pid_t thread);

/// Processor time of a thread; 0 if it has ended.
[[nodiscard]] std::chrono::nanoseconds processor_time(pid_t thread);

/// A scope that ThreadSanitizer does not see: no order comes from it, and no race in it counts.
/// Note [Order only through queues and events]
class UnseenByThreadSanitizer {
 public:
  UnseenByThreadSanitizer();
  ~UnseenByThreadSanitizer();
  UnseenByThreadSanitizer(const UnseenByThreadSanitizer&) = delete;
  UnseenByThreadSanitizer& operator=(const UnseenByThreadSanitizer&) = delete;
};

/// A scope within such a scope that ThreadSanitizer sees.
class SeenByThreadSanitizer {
 public:
  SeenByThreadSanitizer();
  ~SeenByThreadSanitizer();
  SeenByThreadSanitizer(const SeenByThreadSanitizer&) = delete;
  SeenByThreadSanitizer& operator=(const SeenByThreadSanitizer&) = delete;
};

}  // namespace gantry::sim
