// A function with a stack of its own.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>

namespace gantry::testing {

/// A function that can stop in between and go on later, on a stack of its own.
///
/// A function that is abandoned, or begun again, leaves its frames as they are: they own nothing.
/// Thread safety: one thread, that of all its fibers.
class Fiber {
 public:
  Fiber()
      : stack_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (stack_ == MAP_FAILED) throw std::runtime_error("no memory for a stack");
  }
  ~Fiber() { munmap(stack_, kStackBytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void start(std::function<void()> body) {
    body_ = std::move(body);
    getcontext(&here_);
    here_.uc_stack.ss_sp = stack_;
    here_.uc_stack.ss_size = kStackBytes;
    here_.uc_link = &there_;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&here_, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
    runs_ = true;
  }
  bool runs() const { return runs_; }
  void abandon() { runs_ = false; }
  /// Goes on until it stops, or ends.
  void resume() { swapcontext(&there_, &here_); }
  /// By the function itself.
  void stop() { swapcontext(&here_, &there_); }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  static void enter(unsigned high, unsigned low) {
    auto& self = *reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
    self.body_();
    self.runs_ = false;
  }

  void* stack_;
  ucontext_t here_;
  ucontext_t there_;
  std::function<void()> body_;
  bool runs_ = false;
};

}  // namespace gantry::testing
