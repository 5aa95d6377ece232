// A device whose memory is all in the cache: captures and calls of the driver find some all the
// same. Created streams take memory here (GANTRY_SIM_STREAM_MEMORY), as on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "device/drivers/memory_reclaim.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "tests/memory/captures/capture_fixture.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::Begun;
using gantry::testing::CapturedGraph;
using gantry::testing::kMib;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr CaptureMode kModes[] = {CaptureMode::global, CaptureMode::thread_local_,
                                  CaptureMode::relaxed};

class CachedMemoryTest : public gantry::testing::HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (IsSkipped()) return;
    static_cast<void>(Stream::from_pool());  // the pool's streams exist
    empty_cache();
  }
  // Bytes that the allocator may hold: a large device has a limit (HeapTest).
  static std::size_t limit() {
    const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
    return static_cast<std::size_t>(total * standard_allocator().fraction(0));
  }
  // Bytes that it may still get.
  static std::size_t left() {
    return std::min(driver().memory_info(0).free, limit() - allocated());
  }
  // All memory that the allocator may hold, in blocks: few, since a stream that is held takes only
  // so much work.
  static std::vector<Buffer> allocate_all(const Stream& stream) {
    std::vector<Buffer> all;
    const std::size_t large = limit() / 20 / (2 * kMib) * (2 * kMib);
    for (const std::size_t bytes : {large, 16 * kMib, 2 * kMib, kMib}) {
      try {
        for (;;) {
          all.push_back(allocate(stream, bytes));
          driver().fill(all.back().data(), 1, 64, stream.native());
        }
      } catch (const OutOfMemoryError&) {
      }
    }
    // What is left is less than the chunks of a driver, of 2 MiB, and the rest of the limit.
    EXPECT_LT(left(), 4 * kMib);
    return all;
  }
  // Leaves all memory of the device in the cache, with work of `stream` behind it.
  static void fill_cache(const Stream& stream) {
    allocate_all(stream).clear();
    ASSERT_EQ(allocated(), 0u);
  }
  // Likewise, with work of `user`, too.
  static void fill_cache(const Stream& stream, const Stream& user) {
    std::vector<Buffer> all = allocate_all(stream);
    user.wait(stream);
    for (const Buffer& one : all) {
      driver().fill(one.data(), 1, 64, user.native());
      one.block().allocator->record_stream(one.block(), user);
    }
  }
  static void on_thread(bool is_other, const std::function<void()>& function) {
    if (!is_other) return function();
    std::thread(function).join();
  }
  static void expect_captured(const Stream& stream, Begun begun, CaptureMode mode) {
    CapturedGraph graph(stream, begun, mode);
    std::optional<Buffer> block = allocate(stream, 512);
    driver().fill(block->data(), 7, 512, stream.native());
    graph.end();
    graph.replay(stream);
    EXPECT_TRUE(gantry::testing::holds(*block, 7, stream));
    block.reset();
    graph.destroy_and_wait();
  }
};

TEST_F(CachedMemoryTest, CapturesGetMemoryOfAnotherStream) {
  const Stream eager = Stream::default_stream();
  const Stream captured = Stream::from_pool();
  for (const CaptureMode mode : kModes) {
    for (const Begun begun : {Begun::by_gantry, Begun::by_others}) {
      for (const bool is_done : {true, false}) {
        fill_cache(eager);
        if (is_done) driver().synchronize_device(0);
        expect_captured(captured, begun, mode);
        driver().synchronize_device(0);
        empty_cache();
      }
    }
  }
}

TEST_F(CachedMemoryTest, CapturesGetMemoryOfTheirOwnStream) {
  const Stream stream = Stream::from_pool();
  for (const CaptureMode mode : kModes) {
    for (const bool is_done : {true, false}) {
      fill_cache(stream);
      if (is_done) driver().synchronize_device(0);
      expect_captured(stream, Begun::by_gantry, mode);
      driver().synchronize_device(0);
      empty_cache();
    }
  }
}

TEST_F(CachedMemoryTest, CapturesWaitForBlocksOfSeveralStreams) {
  const Stream first = Stream::default_stream();
  const Stream second = Stream::from_pool();
  const Stream captured = Stream::from_pool();
  fill_cache(first, second);
  expect_captured(captured, Begun::by_gantry, CaptureMode::global);
}

// The blocks are free for their own stream first, of which the capture has found out nothing yet.
TEST_F(CachedMemoryTest, CapturesWaitForAStreamAndThenFindItsBlocks) {
  const Stream first = Stream::default_stream();
  const Stream second = Stream::from_pool();
  const Stream captured = Stream::from_pool();
  gantry::testing::FaultDriver calls;
  const auto waits = [&] {
    return calls.calls("synchronize_event") + calls.calls("synchronize_stream");
  };
  {
    gantry::testing::StreamHold hold(second);
    fill_cache(first, second);
    CapturedGraph graph(captured, Begun::by_gantry, CaptureMode::global);
    const std::uint64_t before = waits();
    std::atomic<bool> is_served = false;  // backend async may find other memory below a limit
    std::thread releaser([&] {
      EXPECT_TRUE(gantry::testing::eventually([&] { return is_served || waits() > before; }));
      hold.release();
    });
    EXPECT_NO_THROW(static_cast<void>(allocate(captured, 512)));
    is_served = true;
    releaser.join();
    EXPECT_NO_THROW(graph.end());
    graph.destroy_and_wait();
  }
  driver().synchronize_device(0);
}

TEST_F(CachedMemoryTest, CapturesWaitForWorkOfAnotherStream) {
  const Stream eager = Stream::from_pool();
  const Stream captured = Stream::from_pool();
  gantry::testing::FaultDriver calls;
  {
    gantry::testing::StreamHold hold(eager);
    fill_cache(eager);
    const std::uint64_t before = calls.calls("synchronize_event");
    std::atomic<bool> is_captured = false;  // backend async may find other memory below a limit
    std::thread releaser([&] {
      EXPECT_TRUE(gantry::testing::eventually(
          [&] { return is_captured || calls.calls("synchronize_event") > before; }));
      hold.release();
    });
    EXPECT_NO_THROW(expect_captured(captured, Begun::by_gantry, CaptureMode::global));
    is_captured = true;
    releaser.join();
  }
  driver().synchronize_device(0);
}

TEST_F(CachedMemoryTest, RequestsBesideACaptureDoNotSpoilIt) {
  const Stream cached = Stream::from_pool();
  const Stream captured = Stream::from_pool();
  const Stream eager = Stream::from_pool();
  for (const CaptureMode mode : kModes) {
    for (const Begun begun : {Begun::by_gantry, Begun::by_others}) {
      for (const bool is_other_thread : {false, true}) {
        fill_cache(cached);
        CapturedGraph graph(captured, begun, mode);
        on_thread(is_other_thread, [&] {
          std::optional<Buffer> block = allocate(eager, 40 * kMib);
          EXPECT_THROW(static_cast<void>(allocate(eager, limit() - 8 * kMib)), OutOfMemoryError);
          block.reset();
          empty_cache();
          EXPECT_NO_THROW(static_cast<void>(allocate(eager, limit() / 2)));
        });
        EXPECT_NO_THROW(graph.end());
        graph.destroy_and_wait();
        driver().synchronize_device(0);
        empty_cache();
      }
    }
  }
}

// Only a synchronization of the device tells when such streams are done.
TEST_F(CachedMemoryTest, BlocksOfStreamsThatCannotBeAskedDoNotSpoilACapture) {
  const Stream captured = Stream::from_pool();
  const Stream eager = Stream::from_pool();
  for (const CaptureMode mode : kModes) {
    for (const Begun begun : {Begun::by_gantry, Begun::by_others}) {
      const std::size_t half = left() / 4 * 2;
      Buffer block = allocate(gantry::testing::per_thread_stream(), half + 8 * kMib);
      std::thread([&] { block.reset(); }).join();
      CapturedGraph graph(captured, begun, mode);
      EXPECT_THROW(static_cast<void>(allocate(eager, half)), OutOfMemoryError);
      EXPECT_NO_THROW(empty_cache());
      EXPECT_NO_THROW(graph.end());
      graph.destroy_and_wait();
      EXPECT_NO_THROW(static_cast<void>(allocate(eager, half)));
      driver().synchronize_device(0);
      empty_cache();
    }
  }
}

TEST_F(CachedMemoryTest, RequestsDoNotWaitForWorkWithoutFrees) {
  const Stream busy = Stream::from_pool();
  gantry::testing::StreamHold hold(busy);
  const std::vector<Buffer> all = allocate_all(Stream::default_stream());
  EXPECT_THROW(static_cast<void>(allocate(Stream::from_pool(), 4 * kMib)), OutOfMemoryError);
}

TEST_F(CachedMemoryTest, ErrorNamesTheCaptureAndTheRemedy) {
  GANTRY_REQUIRE_SIM();  // a GPU may refuse to capture a stream with work
  const Stream stream = Stream::from_pool();
  gantry::testing::StreamHold hold(stream);
  fill_cache(stream);
  // gantry cannot look at the stream before.
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  EXPECT_THAT([&] { static_cast<void>(allocate(stream, 512)); },
              ThrowsMessage<OutOfMemoryError>(
                  AllOf(HasSubstr("Tried to allocate 512 bytes for a capture."),
                        HasSubstr("synchronize or call memory::empty_cache() before the capture"),
                        Not(HasSubstr("max_split_size_mb")), Not(HasSubstr("in pieces")))));
  driver().destroy_graph(driver().end_capture(stream.native()));
  hold.release();
  driver().synchronize_device(0);
  expect_captured(stream, Begun::by_gantry, CaptureMode::relaxed);
}

TEST_F(CachedMemoryTest, StreamsAreMade) {
  for (const bool is_done : {true, false}) {
    fill_cache(Stream::default_stream());
    if (is_done) driver().synchronize_device(0);
    const NativeStream made = driver().create_stream(0, 0);
    EXPECT_LT(reserved(), device_properties(Device::cuda(0)).total_memory);
    driver().destroy_stream(made);
    driver().synchronize_device(0);
    empty_cache();
  }
}

TEST_F(CachedMemoryTest, StreamsAreMadeOnceWorkOfAnotherStreamIsDone) {
  const Stream eager = Stream::from_pool();
  gantry::testing::FaultDriver calls;
  gantry::testing::StreamHold hold(eager);
  fill_cache(eager);
  const std::uint64_t before = calls.calls("event_reached");
  std::atomic<bool> is_made = false;  // a GPU may need no memory for one stream
  std::thread releaser([&] {
    EXPECT_TRUE(gantry::testing::eventually(
        [&] { return is_made || calls.calls("event_reached") > before + 10; }));
    hold.release();
  });
  EXPECT_NO_THROW(driver().destroy_stream(driver().create_stream(0, 0)));
  is_made = true;
  releaser.join();
  driver().synchronize_device(0);
}

TEST_F(CachedMemoryTest, StreamsAreNotMadeOfMemoryInUse) {
  GANTRY_REQUIRE_SIM();
  std::vector<Buffer> all = allocate_all(Stream::default_stream());
  EXPECT_THAT([] { static_cast<void>(driver().create_stream(0, 0)); },
              ThrowsMessage<CudaError>(HasSubstr("cudaErrorMemoryAllocation")));
  all.clear();
  driver().synchronize_device(0);
  driver().destroy_stream(driver().create_stream(0, 0));
}

TEST_F(CachedMemoryTest, CallsWithinTheHeapReclaimNothing) {
  fill_cache(Stream::default_stream());
  driver().synchronize_device(0);
  {
    const NoReclaim scope;
    EXPECT_FALSE(reclaim_memory(0));
  }
  if (&standard_allocator() == &heap_allocator()) {
    // A thread that holds the lock of the heap must not wait for it.
    const HeapLock lock = heap_allocator().heap(0).lock();
    EXPECT_FALSE(reclaim_memory(0));
  }
  EXPECT_NE(reserved(), 0u);
  EXPECT_TRUE(reclaim_memory(0));
  EXPECT_EQ(reserved(), 0u);
  EXPECT_FALSE(reclaim_memory(0)) << "nothing is left";
  fill_cache(Stream::default_stream());
  driver().synchronize_device(0);
  EXPECT_TRUE(reclaim_memory(-1)) << "of every device";
}

}  // namespace
}  // namespace gantry::memory
