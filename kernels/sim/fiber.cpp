#include "kernels/sim/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

// Weak: null unless the program, which is instrumented then, brings the runtime.
extern "C" {
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                                  std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                                   std::size_t* bytes);
}

namespace gantry::kernels::sim {

namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr unsigned kNoOrder = 1;  // of __tsan_switch_to_fiber

// The fiber that the thread leaves, for the one it arrives at. Atomic, since no order exists
// between the two for ThreadSanitizer.
thread_local std::atomic<Fiber*> t_left{nullptr};

}  // namespace

Fiber::Fiber() {
  if (__tsan_get_current_fiber != nullptr) tsan_ = __tsan_get_current_fiber();
}

Fiber::Fiber(std::function<void()> entry) : entry_(std::move(entry)) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* mapping = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(mapping, page, PROT_NONE) != 0) {
    munmap(mapping, kStackBytes + page);
    throw std::bad_alloc();
  }
  mapping_ = mapping;
  stack_bottom_ = static_cast<char*>(mapping) + page;
  stack_bytes_ = kStackBytes;
  getcontext(&context_);
  context_.uc_stack.ss_sp = static_cast<char*>(mapping) + page;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext passes ints.
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::start), 2,
              static_cast<unsigned>(std::uint64_t{self} >> 32), static_cast<unsigned>(self));
  if (__tsan_create_fiber != nullptr) tsan_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
  if (tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
  munmap(mapping_, kStackBytes + static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

void Fiber::switch_to(Fiber& target) {
  t_left.store(this, std::memory_order_relaxed);
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&fake_stack_, target.stack_bottom_, target.stack_bytes_);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(target.tsan_, kNoOrder);
  swapcontext(&context_, &target.context_);
  arrive();
}

void Fiber::arrive() {
  if (__sanitizer_finish_switch_fiber == nullptr) return;
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  // The stack of the thread is known only from here.
  Fiber* left = t_left.load(std::memory_order_relaxed);
  if (left->mapping_ == nullptr) {
    left->stack_bottom_ = bottom;
    left->stack_bytes_ = bytes;
  }
}

void Fiber::start(unsigned high, unsigned low) {
  auto* self =
      reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(std::uint64_t{high} << 32 | low));
  self->arrive();
  self->entry_();
}

bool is_race_detector_active() noexcept { return __tsan_switch_to_fiber != nullptr; }

void order_release(const void* address) noexcept {
  if (__tsan_release != nullptr) __tsan_release(const_cast<void*>(address));
}

void order_acquire(const void* address) noexcept {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<void*>(address));
}

}  // namespace gantry::kernels::sim
