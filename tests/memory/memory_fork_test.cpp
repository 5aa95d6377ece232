// Processes that end or fork while they hold device memory.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "memory/backends.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

class MemoryForkTest : public gantry::testing::HeapTest {};

template <class F>
bool throws_fork_error(F&& f) {
  try {
    f();
  } catch (const ForkError&) {
    return true;
  } catch (...) {
  }
  return false;
}

TEST_F(MemoryForkTest, ChildCannotAllocateAndItsFreesDoNothing) {
  const Stream stream = Stream::current();
  Buffer device = allocate(stream, 1000);
  Buffer host = pinned(1000);
  void* raw = allocate_raw(1000);
  { const Buffer cached = allocate(stream, 2000); }
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failed = 0;
    if (!throws_fork_error([&] { static_cast<void>(allocate(stream, 1000)); })) failed |= 1;
    if (!throws_fork_error([&] { static_cast<void>(pinned(1000)); })) failed |= 2;
    device.reset();
    host.reset();
    memory::deallocate_raw(raw);
    if (device.data() != nullptr || host.data() != nullptr) failed |= 4;
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(allocated(), 2048u) << "the child changed its parent";
  memory::deallocate_raw(raw);
}

// Ends the calling process with 0 if `f` returns, and by a signal if it does not.
template <class F>
[[noreturn]] void end_after(F&& f) {
  alarm(30);
  f();
  _exit(0);
}

TEST_F(MemoryForkTest, ChildDoesNotWaitForLocksThatItsParentHeld) {
  const Stream stream = Stream::current();
  const Stream other = Stream::from_pool();
  const auto async = make_allocator("async", {});
  Allocator& host = pinned_allocator();
  const Buffer pinned_buffer = pinned(1000);
  const Buffer async_buffer(async->allocate(stream, 1000));
  std::atomic<bool> stop{false};
  // Holds locks of both at many moments.
  std::thread busy([&] {
    while (!stop) {
      for (int i = 0; i < 100; ++i) host.record_stream(pinned_buffer.block(), stream);
      for (int i = 0; i < 100; ++i) async->record_stream(async_buffer.block(), stream);
    }
  });
  bool ended_well = true;
  for (int round = 0; round < 100 && ended_well; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      end_after([&] {
        host.record_stream(pinned_buffer.block(), other);
        host.record_use(pinned_buffer.block(), other);
        host.empty_cache(Device::cpu());
        async->record_stream(async_buffer.block(), other);
      });
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(ended_well) << "round " << round << ": status " << status;
  }
  stop = true;
  busy.join();
}

// Statics end after everything else; this one is part of every run of this binary.
struct LateUser {
  Buffer device;
  Buffer host;
};

TEST_F(MemoryForkTest, BuffersMayOutliveMain) {
  static LateUser& late = *[] {
    static LateUser user;
    return &user;
  }();
  // Not the heap that TearDown checks.
  if (device_count() < 2) GTEST_SKIP() << "needs 2 devices";
  const Device last = Device::cuda(device_count() - 1);
  late.device = allocate(Stream::current(last), 0);
  late.host = pinned(1000);
}

}  // namespace
}  // namespace gantry::memory
