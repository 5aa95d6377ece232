// Stacks that one OS thread switches between.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace gantry::kernels::sim {

// A stack on which functions run, one after the other, until they switch away.
//
// Note [Sanitizers and fibers]
// Every switch is announced to ThreadSanitizer and AddressSanitizer. For ThreadSanitizer a switch
// is no order: two fibers race like two threads, although one OS thread runs both. A barrier does
// order fibers, and calls order_release() and order_acquire() for that.
//
// Thread safety: a fiber stays on the OS thread that made it.
class Fiber {
 public:
  // The fiber of the calling thread's own stack. It must be made outside of other fibers.
  Fiber();
  // A stack of its own. entry() runs at the first switch to it, and never returns.
  // Throws: std::bad_alloc.
  explicit Fiber(std::function<void()> entry);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on where `target` last switched away. Returns when another fiber switches back.
  void switch_to(Fiber& target);

 private:
  static void start(unsigned high, unsigned low);
  void arrive();

  ucontext_t context_{};
  std::function<void()> entry_;
  void* mapping_ = nullptr;             // the stack with its guard page; null: the thread's own
  void* tsan_ = nullptr;                // ThreadSanitizer's name of the fiber
  void* fake_stack_ = nullptr;          // AddressSanitizer's
  const void* stack_bottom_ = nullptr;  // of a stack of its own, or as AddressSanitizer tells it
  std::size_t stack_bytes_ = 0;
};

// True if ThreadSanitizer watches the process.
[[nodiscard]] bool is_race_detector_active() noexcept;
// For ThreadSanitizer: what comes before order_release() happens before what follows a later
// order_acquire() of the same address.
void order_release(const void* address) noexcept;
void order_acquire(const void* address) noexcept;

}  // namespace gantry::kernels::sim
