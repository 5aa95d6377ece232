// The threads of one block of launch(), on one OS thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <gantry/kernels/block.hpp>
#include <gantry/kernels/launch.hpp>

#include "kernels/sim/fiber.hpp"

namespace gantry::detail {

// Note [Simulated threads]
// Thread 0 runs on the calling thread's stack. Without barriers, all threads run there, one after
// the other. At the first barrier, or the first wait for a kernel of another rank, each other
// thread gets a fiber. From then on a thread that waits switches to the next thread, and the last
// one to the lowest. A barrier that some threads do not reach is an error. After an error or an
// exception, the other threads of the block unwind their stacks before the exception propagates.
//
// Under ThreadSanitizer all threads have fibers from the start, and only barriers order them. A
// missing barrier is thus a race between two threads. The state below is atomic for that reason.
// ThreadSanitizer identifies a barrier by an address. Barriers use two addresses in turn, so a
// thread that leaves a barrier is not ordered after a thread that has already reached the next one.
class SimBlock {
 public:
  SimBlock(const Grid& grid, const BlockSize& size, BlockFunction function, const void* functor);

  // Runs all threads of block `index`. Throws what a thread throws.
  void run(Index3 index);
  void wait_at_barrier(std::uint32_t thread);
  // A barrier at which one thread or more pass true.
  bool any_at_barrier(std::uint32_t thread, bool flag);
  void* shared_memory(std::size_t offset, std::size_t bytes);
  // Lets the other threads of the calling thread's block run, if it runs in one.
  static void yield();

 private:
  enum : std::uint8_t { kUnstarted, kRunning, kFinished };
  struct Thread {
    std::atomic<std::uint8_t> state{kUnstarted};
    std::atomic<std::uint32_t> barriers{0};  // that it has reached
    std::atomic<bool> is_on_own{false};      // runs on the calling thread's stack
  };
  // The simulated thread that an OS thread runs.
  struct Running;
  class Worker;
  struct Stacks;
  struct Unwind {};

  static Stacks& stacks();

  void make_workers();
  void run_thread(std::uint32_t number, bool is_on_own);
  kernels::sim::Fiber& fiber_of(std::uint32_t number);
  // Runs other threads until one of them switches back to `number`. Throws: Unwind.
  void switch_from(std::uint32_t number);
  // The fiber that goes on when `number` waits or is finished.
  kernels::sim::Fiber& next_after(std::uint32_t number);
  [[nodiscard]] bool can_run(std::uint32_t number) const;
  void fail(std::exception_ptr error);

  Index3 grid_;
  Index3 size_;
  Index3 index_{};
  std::uint32_t count_;
  BlockFunction function_;
  const void* functor_;
  std::size_t shared_bytes_;
  std::unique_ptr<unsigned char[]> shared_;
  std::unique_ptr<Thread[]> threads_;

  std::atomic<std::uint32_t> finished_{0};
  std::atomic<std::uint32_t> last_barrier_{0};  // the highest number that a thread has reached
  std::atomic<std::uint64_t> arrivals_{0};      // of all threads at all barriers
  std::atomic<bool> votes_[2] = {};             // of barriers with odd and even numbers
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  char begin_ = 0;  // names for order_release()
  char end_ = 0;
  char barrier_[2] = {};
};

}  // namespace gantry::detail
