// Lets every driver call that the allocators make fail once.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::expect_stats_add_up;
using gantry::testing::FaultDriver;
using gantry::testing::kMib;

class AllocatorFaultsTest : public gantry::testing::HeapTest {
 protected:
  /// Runs `scenario` once per driver call it makes, that call failing; it must be left clean.
  void sweep(
      const std::function<void()>& scenario, const std::function<void()>& prepare = [] {}) {
    FaultDriver driver;
    prepare();
    driver.reset_counts();
    scenario();
    // What AddressSanitizer builds submit is outside of the contract.
    auto counts = driver.counts();
    counts.erase("launch_host_function");
    ASSERT_FALSE(counts.empty());
    for (const auto& [call, count] : counts) {
      if (call.starts_with("destroy_") || call == "restore_device") continue;
      for (std::uint64_t nth = 1; nth <= count; ++nth) {
        SCOPED_TRACE(call + " " + std::to_string(nth));
        prepare();
        driver.reset_counts();
        driver.fail_on(call, nth);
        try {
          scenario();
        } catch (const Error&) {
        }
        driver.fail_nothing();
        EXPECT_EQ(allocated(), 0u);
        expect_stats_add_up(stats());
        synchronize();
        empty_cache();
        EXPECT_EQ(stats().active_bytes.all.current, 0);
        EXPECT_EQ(reserved(), 0u);
      }
    }
  }
};

TEST_F(AllocatorFaultsTest, PlainAllocation) {
  const Stream stream = Stream::current();
  sweep([&] {
    const Buffer small = allocate(stream, 1000);
    const Buffer large = allocate(stream, 30 * kMib);
  });
}

TEST_F(AllocatorFaultsTest, EmptyingTheCache) {
  const Stream stream = Stream::current();
  sweep([&] {
    {
      const std::vector<Buffer> many = [&] {
        std::vector<Buffer> made;
        for (int i = 0; i < 3; ++i) made.push_back(allocate(stream, 30 * kMib));
        return made;
      }();
    }
    empty_cache();
  });
}

TEST_F(AllocatorFaultsTest, RecordedStreams) {
  const Stream own = Stream::current();
  const std::vector<Stream> users = {Stream::from_pool(), Stream::from_pool()};
  sweep([&] {
    Buffer buffer = allocate(own, 30 * kMib);
    for (const Stream& user : users) allocator(Device::cuda(0)).record_stream(buffer.block(), user);
    buffer.reset();
    const Buffer next = allocate(own, 30 * kMib);
    empty_cache();
  });
}

TEST_F(AllocatorFaultsTest, OutOfMemoryRecovery) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  limit_to(64 * kMib);
  sweep([&] {
    Buffer held = allocate(own, 30 * kMib);
    allocator(Device::cuda(0)).record_stream(held.block(), user);
    held.reset();
    { const Buffer cached = allocate(user, 32 * kMib); }
    const Buffer large = allocate(own, 60 * kMib);
    try {
      static_cast<void>(allocate(own, 10 * kMib));
    } catch (const OutOfMemoryError&) {
    }
  });
}

TEST_F(AllocatorFaultsTest, Pools) {
  const Stream stream = Stream::current();
  sweep([&] {
    MemPool pool;
    const Buffer large = pool.allocate(stream, 4 * kMib);
    std::optional<Buffer> gap = pool.allocate(stream, 2 * kMib);
    const Buffer other = pool.allocate(stream, 6 * kMib);
    const Buffer small = pool.allocate(stream, 1000);
    gap.reset();
    try {
      pool.release_physical();
      pool.restore_physical();
    } catch (const Error&) {  // one call fails, so what follows does not
      EXPECT_NO_THROW(pool.restore_physical());
    }
    EXPECT_TRUE(pool.has_physical());
    for (const Buffer* buffer : {&large, &other, &small}) {
      driver().fill(buffer->data(), 1, buffer->bytes(), stream.native());
    }
    const Buffer more = pool.allocate(stream, 1000);
  });
}

TEST_F(AllocatorFaultsTest, RawPointers) {
  sweep([&] {
    void* data = allocate_raw(1000);
    memory::deallocate_raw(data);
  });
}

TEST_F(AllocatorFaultsTest, Export) {
  const Stream stream = Stream::current();
  sweep([&] {
    const Buffer buffer = allocate(stream, 1000);
    driver().fill(buffer.data(), 1, buffer.bytes(), stream.native());
    const IpcHandle handle = export_ipc(buffer.block());
    static_cast<void>(import_ipc(handle, Device::cuda(0)));
  });
}

TEST_F(AllocatorFaultsTest, UnmarkedBlocksAreNotReused) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  Buffer buffer = allocate(own, 30 * kMib);
  void* data = buffer.data();
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  FaultDriver driver;
  driver.fail_on("record_event", 1, gantry::testing::kUnknown, 2);
  gantry::testing::StreamHold hold(user);
  buffer.reset();  // cannot be marked now, nor at the next miss
  const Buffer other = allocate(own, 30 * kMib);
  EXPECT_NE(other.data(), data);
  const Buffer third = allocate(own, 30 * kMib);  // gives it a sequence number
  EXPECT_NE(third.data(), data) << "reused before the sequence number was reached";
  hold.release();
  user.synchronize();
  const Buffer again = allocate(own, 30 * kMib);
  EXPECT_EQ(again.data(), data) << "lost after it could be marked";
}

TEST_F(AllocatorFaultsTest, PinnedMemory) {
  const Stream user = Stream::from_pool();
  const auto clean = [] { pinned_allocator().empty_cache(Device::cpu()); };
  sweep(
      [&] {
        Buffer buffer = pinned(3 * kMib);
        pinned_allocator().record_stream(buffer.block(), user);
        buffer.reset();
        const Buffer next = pinned(3 * kMib);
        pinned_allocator().empty_cache(Device::cpu());
      },
      clean);
  clean();
}

}  // namespace
}  // namespace gantry::memory
