// What a thread of this process is doing.
#pragma once

#include <sys/types.h>

namespace gantry::sim {

/// Number of the calling thread.
[[nodiscard]] pid_t this_thread_number();

/// True if the thread sleeps in a system call; false if it computes or that cannot be told.
[[nodiscard]] bool is_asleep(pid_t thread);

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
