// How long recovery waits for memory that another thread has in transition.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>

#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kMib;

// The first thread that unmaps memory is long in that call.
class SlowDriver final : public FaultDriver {
 public:
  std::latch is_unmapping{1};
  std::latch may_go_on{1};

  void unmap(void* address, std::size_t bytes) override {
    if (!is_slow_.exchange(false)) return FaultDriver::unmap(address, bytes);
    is_unmapping.count_down();
    may_go_on.wait();
    FaultDriver::unmap(address, bytes);
  }

 private:
  std::atomic<bool> is_slow_{true};
};

// A clock of the heap of device 0 that only moves when recovery pauses.
class StepClock final : public RecoveryClock {
 public:
  explicit StepClock(std::chrono::steady_clock::duration step) : step_(step) {
    heap_allocator().heap(0).set_recovery_clock(this);
  }
  ~StepClock() override { heap_allocator().heap(0).set_recovery_clock(nullptr); }
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  std::chrono::steady_clock::time_point now() noexcept override {
    return std::chrono::steady_clock::time_point(step_ * pauses_.load());
  }
  void pause() noexcept override {
    ++pauses_;
    if (on_pause) on_pause();
    std::this_thread::yield();
  }
  [[nodiscard]] int pauses() const { return pauses_; }

  std::function<void()> on_pause;

 private:
  const std::chrono::steady_clock::duration step_;
  std::atomic<int> pauses_{0};
};

// A thread that takes 40 MiB of cached memory apart, in vain, and is held within the driver.
class TransferWaitTest : public gantry::testing::HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (IsSkipped()) return;
    limit_to(64 * kMib);
    kept_ = allocate(stream(), 20 * kMib);
    { const Buffer cached = allocate(stream(), 40 * kMib); }
    driver_.emplace();
    other_ = std::thread([this] {
      EXPECT_THROW(static_cast<void>(allocate(stream(), 60 * kMib)), OutOfMemoryError);
    });
    driver_->is_unmapping.wait();
  }
  void TearDown() override {
    if (other_.joinable()) {
      let_go();
      other_.join();
    }
    driver_.reset();
    kept_.reset();
    HeapTest::TearDown();
  }
  void let_go() {
    if (!std::exchange(has_let_go_, true)) driver_->may_go_on.count_down();
  }
  [[nodiscard]] static Stream stream() { return Stream::current(); }

 private:
  Buffer kept_;
  std::optional<SlowDriver> driver_;
  std::thread other_;
  bool has_let_go_ = false;
};

TEST_F(TransferWaitTest, MemoryThatAnotherThreadIsLongUnmappingIsWaitedFor) {
  StepClock clock(std::chrono::seconds(0));
  clock.on_pause = [&] {
    if (clock.pauses() == 100) let_go();
  };
  EXPECT_NO_THROW(static_cast<void>(allocate(stream(), 40 * kMib)));
  EXPECT_GE(clock.pauses(), 100);
}

TEST_F(TransferWaitTest, AThreadThatStaysInTheDriverIsNotWaitedForWithoutEnd) {
  StepClock clock(std::chrono::seconds(1));
  clock.on_pause = [&] {
    if (clock.pauses() == 100) let_go();
  };
  EXPECT_THROW(static_cast<void>(allocate(stream(), 40 * kMib)), OutOfMemoryError);
  EXPECT_EQ(clock.pauses(), 5);
}

// An allocator of a pool that asks gantry for more memory than there is.
class GreedyAllocator final : public Allocator {
 public:
  Block allocate(const Stream& stream, std::size_t, std::size_t) override {
    return memory::allocate(stream, 60 * kMib).release();
  }
  void deallocate(Block& block) noexcept override { block.allocator->deallocate(block); }
  [[nodiscard]] std::string name() const override { return "greedy"; }
};

class NestedTransferTest : public gantry::testing::HeapTest {};

TEST_F(NestedTransferTest, AThreadDoesNotWaitForItself) {
  limit_to(32 * kMib);
  const Stream stream = Stream::current();
  MemPool nested(Device::cuda(0), {.allocator = std::make_shared<GreedyAllocator>()});
  StepClock clock(std::chrono::seconds(1));
  EXPECT_THROW(static_cast<void>(allocate(stream, 60 * kMib)), OutOfMemoryError);
  EXPECT_EQ(clock.pauses(), 0) << "no transfer is pending";
  EXPECT_THROW(static_cast<void>(nested.allocate(stream, kMib)), OutOfMemoryError);
  EXPECT_EQ(clock.pauses(), 0) << "the pending transfer is its own";
}

}  // namespace
}  // namespace gantry::memory
