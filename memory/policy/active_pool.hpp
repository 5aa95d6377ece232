// The pool that the calling thread allocates from.
#pragma once

#include <vector>

namespace gantry::memory {

struct Pool;

/// The pool of the calling thread's allocations on `device`, nullptr: the common pool; see
/// MemPoolGuard.
[[nodiscard]] Pool* active_pool(int device) noexcept;

// Note [Functions of the program]
// gantry calls functions of the program at moments that the program does not choose: allocators,
// deleters, observers, handlers. Such a function may call gantry again. It gets memory of the
// common pool then, never of the pool that the thread's own code has chosen: that pool may be the
// one that waits for the function. So each of these calls is made in a scope of NoActivePool, and
// without a lock of gantry. The test foreign_functions lists them all.

/// A scope in which the calling thread has no active pool on any device; for calls of functions of
/// the program. Scopes of MemPoolGuard in it end before it.
class NoActivePool {
 public:
  NoActivePool() noexcept;
  ~NoActivePool();
  NoActivePool(const NoActivePool&) = delete;
  NoActivePool& operator=(const NoActivePool&) = delete;

 private:
  std::vector<Pool*>* before_;
};

}  // namespace gantry::memory
