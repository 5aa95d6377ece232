#include "kernels/sim/sim_block.hpp"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry::detail {

using kernels::sim::Fiber;
using kernels::sim::is_race_detector_active;
using kernels::sim::order_acquire;
using kernels::sim::order_release;

namespace {

constexpr int kGarbage = 0xA5;  // what shared memory holds at the start of a block

std::string text(Index3 at) { return fmt::format("({}, {}, {})", at.x, at.y, at.z); }

}  // namespace

// A fiber that runs one thread of a block after the other.
class SimBlock::Worker {
 public:
  Worker() : fiber_([this] { work(); }) {}

  Fiber& fiber_of(SimBlock* block, std::uint32_t number) {
    block_.store(block, std::memory_order_relaxed);
    number_.store(number, std::memory_order_relaxed);
    return fiber_;
  }

 private:
  void work() {
    for (;;) {
      SimBlock* block = block_.load(std::memory_order_relaxed);
      const std::uint32_t number = number_.load(std::memory_order_relaxed);
      block->run_thread(number, /*is_on_own=*/false);
      Fiber& next = block->next_after(number);
      order_release(&block->end_);  // behind the last look at the block
      fiber_.switch_to(next);
    }
  }

  std::atomic<SimBlock*> block_{nullptr};
  std::atomic<std::uint32_t> number_{0};
  Fiber fiber_;
};

// Atomic, since no order exists between two fibers for ThreadSanitizer.
struct SimBlock::Running {
  std::atomic<SimBlock*> block{nullptr};
  std::atomic<std::uint32_t> number{0};

  static Running& here() {
    thread_local Running running;
    return running;
  }
  void set(SimBlock* of, std::uint32_t thread) {
    block.store(of, std::memory_order_relaxed);
    number.store(thread, std::memory_order_relaxed);
  }
};

// The fibers that an OS thread keeps for its next block.
struct SimBlock::Stacks {
  Fiber own;
  std::vector<std::unique_ptr<Worker>> workers;  // of thread 1, thread 2, …
};

SimBlock::Stacks& SimBlock::stacks() {
  thread_local const auto stacks = std::make_unique<Stacks>();  // thread-local memory is scarce
  return *stacks;
}

SimBlock::SimBlock(const Grid& grid, const BlockSize& size, BlockFunction function,
                   const void* functor)
    : grid_{static_cast<std::uint32_t>(grid.x), static_cast<std::uint32_t>(grid.y),
            static_cast<std::uint32_t>(grid.z)},
      size_{static_cast<std::uint32_t>(size.x), static_cast<std::uint32_t>(size.y),
            static_cast<std::uint32_t>(size.z)},
      count_(size_.x * size_.y * size_.z),
      function_(function),
      functor_(functor),
      shared_bytes_(size.shared_bytes),
      shared_(new unsigned char[size.shared_bytes]),
      threads_(new Thread[count_]) {
  if (is_race_detector_active()) make_workers();
}

void SimBlock::make_workers() {
  auto& workers = stacks().workers;
  while (workers.size() + 1 < count_) workers.push_back(std::make_unique<Worker>());
}

void SimBlock::run(Index3 index) {
  index_ = index;
  for (std::uint32_t t = 0; t < count_; ++t) {
    threads_[t].state.store(kUnstarted, std::memory_order_relaxed);
    threads_[t].barriers.store(0, std::memory_order_relaxed);
    threads_[t].is_on_own.store(false, std::memory_order_relaxed);
  }
  finished_.store(0, std::memory_order_relaxed);
  last_barrier_.store(0, std::memory_order_relaxed);
  arrivals_.store(0, std::memory_order_relaxed);
  std::memset(shared_.get(), kGarbage, shared_bytes_);
  order_release(&begin_);
  run_thread(0, /*is_on_own=*/true);
  for (bool can_end = false; !can_end;) {
    can_end = true;
    for (std::uint32_t t = 1; t < count_; ++t) {
      if (!can_run(t)) continue;
      const bool is_fresh = threads_[t].state.load(std::memory_order_relaxed) == kUnstarted;
      if (is_fresh && !is_race_detector_active()) {
        run_thread(t, /*is_on_own=*/true);
      } else {
        stacks().own.switch_to(fiber_of(t));
      }
      can_end = can_end && !can_run(t);
    }
  }
  Running::here().set(nullptr, 0);
  order_acquire(&end_);
  if (!failed_.load(std::memory_order_relaxed)) return;
  std::exception_ptr error = std::exchange(error_, nullptr);
  std::rethrow_exception(std::move(error));
}

void SimBlock::run_thread(std::uint32_t number, bool is_on_own) {
  order_acquire(&begin_);
  Running::here().set(this, number);
  Thread& self = threads_[number];
  self.is_on_own.store(is_on_own, std::memory_order_relaxed);
  self.state.store(kRunning, std::memory_order_relaxed);
  SimThread thread;
  thread.block = this;
  thread.grid = grid_;
  thread.size = size_;
  thread.index = index_;
  thread.thread = {number % size_.x, number / size_.x % size_.y, number / size_.x / size_.y};
  thread.number = number;
  Block block = BlockMaker::simulated(thread);
  std::exception_ptr error;
  try {
    function_(functor_, block);
    if (self.barriers.load(std::memory_order_relaxed) <
        last_barrier_.load(std::memory_order_relaxed)) {
      throw InvalidArgument(fmt::format(
          "launch: expected all threads of block {} at barrier {}, but thread {} returned before",
          text(index_), last_barrier_.load(std::memory_order_relaxed), text(thread.thread)));
    }
  } catch (const Unwind&) {
  } catch (...) {
    error = std::current_exception();
  }
  if (error) fail(std::move(error));
  self.state.store(kFinished, std::memory_order_relaxed);
  finished_.fetch_add(1, std::memory_order_relaxed);
}

void SimBlock::fail(std::exception_ptr error) {
  if (failed_.load(std::memory_order_relaxed)) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_relaxed);
}

bool SimBlock::can_run(std::uint32_t number) const {
  switch (threads_[number].state.load(std::memory_order_relaxed)) {
    case kUnstarted:
      return !failed_.load(std::memory_order_relaxed);
    case kRunning:
      return true;
    default:
      return false;
  }
}

Fiber& SimBlock::fiber_of(std::uint32_t number) {
  if (threads_[number].is_on_own.load(std::memory_order_relaxed)) return stacks().own;
  return stacks().workers[number - 1]->fiber_of(this, number);
}

Fiber& SimBlock::next_after(std::uint32_t number) {
  for (std::uint32_t t = number + 1; t < count_; ++t) {
    if (can_run(t)) return fiber_of(t);
  }
  return stacks().own;
}

void SimBlock::switch_from(std::uint32_t number) {
  make_workers();
  Fiber& own = fiber_of(number);
  Fiber& next = next_after(number);
  if (&next != &own) own.switch_to(next);
  Running::here().set(this, number);
  if (failed_.load(std::memory_order_relaxed)) throw Unwind{};
}

void SimBlock::yield() {
  const Running& running = Running::here();
  SimBlock* const block = running.block.load(std::memory_order_relaxed);
  if (block == nullptr || block->count_ == 1) return;
  block->switch_from(running.number.load(std::memory_order_relaxed));
}

void SimBlock::wait_at_barrier(std::uint32_t number) {
  if (failed_.load(std::memory_order_relaxed)) throw Unwind{};
  Thread& self = threads_[number];
  const std::uint32_t barrier = self.barriers.load(std::memory_order_relaxed) + 1;
  if (finished_.load(std::memory_order_relaxed) != 0) {
    throw InvalidArgument(fmt::format(
        "launch: expected all threads of block {} at barrier {}, but some returned before",
        text(index_), barrier));
  }
  if (count_ == 1) return;
  self.barriers.store(barrier, std::memory_order_relaxed);
  last_barrier_.store(barrier, std::memory_order_relaxed);
  arrivals_.fetch_add(1, std::memory_order_relaxed);
  order_release(&barrier_[barrier % 2]);
  do {
    switch_from(number);
  } while (arrivals_.load(std::memory_order_relaxed) < std::uint64_t{barrier} * count_);
  order_acquire(&barrier_[barrier % 2]);
}

bool SimBlock::any_at_barrier(std::uint32_t number, bool flag) {
  if (count_ == 1) return flag;
  const std::uint32_t barrier = threads_[number].barriers.load(std::memory_order_relaxed) + 1;
  std::atomic<bool>& votes = votes_[barrier % 2];
  // The first thread to arrive removes the votes of the barrier before the last one.
  const bool is_first =
      arrivals_.load(std::memory_order_relaxed) == std::uint64_t{barrier - 1} * count_;
  if (is_first || flag) votes.store(flag, std::memory_order_relaxed);
  wait_at_barrier(number);
  return votes.load(std::memory_order_relaxed);
}

void* SimBlock::shared_memory(std::size_t offset, std::size_t bytes) {
  if (bytes > shared_bytes_ || offset > shared_bytes_ - bytes) {
    throw InvalidArgument(
        fmt::format("launch: expected Block::shared() to stay within the {} bytes of the block's "
                    "size, but got a request for {} behind the first {}",
                    shared_bytes_, bytes, offset));
  }
  return shared_.get() + offset;
}

void wait_at_barrier(SimBlock* block, std::uint32_t thread) { block->wait_at_barrier(thread); }

bool any_at_barrier(SimBlock* block, std::uint32_t thread, bool flag) {
  return block->any_at_barrier(thread, flag);
}

void* shared_memory(SimBlock* block, std::size_t offset, std::size_t bytes) {
  return block->shared_memory(offset, bytes);
}

void run_blocks(const Grid& grid, const BlockSize& size, BlockFunction function,
                const void* functor) {
  SimBlock block(grid, size, function, functor);
  for (std::int64_t z = 0; z < grid.z; ++z) {
    for (std::int64_t y = 0; y < grid.y; ++y) {
      for (std::int64_t x = 0; x < grid.x; ++x) {
        block.run({static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y),
                   static_cast<std::uint32_t>(z)});
      }
    }
  }
}

}  // namespace gantry::detail
