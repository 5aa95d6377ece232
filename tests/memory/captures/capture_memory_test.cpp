// Memory that is allocated and freed while streams are captured, for every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "memory/backends.hpp"
#include "tests/memory/captures/capture_fixture.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::AddressSpan;
using gantry::testing::Begun;
using gantry::testing::CapturedGraph;
using gantry::testing::FaultDriver;
using gantry::testing::fill;
using gantry::testing::ForeignStream;
using gantry::testing::holds;
using gantry::testing::kKib;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

constexpr std::size_t kBytes = 64 * kKib;

class CaptureMemoryTest : public gantry::testing::DeviceTest,
                          public ::testing::WithParamInterface<std::tuple<const char*, Begun>> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const std::string backend = std::get<0>(GetParam());
    if (backend == "async" && !driver().supports_memory_pools(0)) {
      GTEST_SKIP() << "cuda:0 has no memory pools";
    }
    allocator_ = make_allocator(backend, {});
    allocator_->empty_cache(Device::cuda(0));
    for (int i = 0; i < device_count(); ++i) before_.push_back(reserved(i));
  }
  void TearDown() override {
    if (allocator_ != nullptr) {
      for (int i = 0; i < device_count(); ++i) expect_balance(i);
      allocator_.reset();
    }
    DeviceTest::TearDown();
  }

  [[nodiscard]] static Begun begun() { return std::get<1>(GetParam()); }
  [[nodiscard]] Buffer make(std::size_t bytes, const Stream& stream) {
    return Buffer(allocator_->allocate(stream, bytes));
  }
  [[nodiscard]] std::int64_t reserved(int device = 0) {
    return allocator_->stats(device).reserved_bytes.all.current;
  }
  /// Nothing is live, and everything goes back to the driver.
  void expect_balance(int device = 0) {
    allocator_->empty_cache(Device::cuda(device));
    const Stats stats = allocator_->stats(device);
    EXPECT_EQ(stats.allocated_bytes.all.current, 0);
    EXPECT_EQ(stats.active_bytes.all.current, 0);
    EXPECT_EQ(stats.reserved_bytes.all.current, before_[static_cast<std::size_t>(device)]);
  }
  /// Buffers of many sizes, none of which may lie where `taken` is, filled with 42.
  std::vector<Buffer> fill_outside(const std::vector<AddressSpan>& taken, const Stream& stream) {
    std::vector<Buffer> made;
    for (int i = 0; i < 60; ++i) {
      made.push_back(make(i % 3 == 0 ? kBytes : std::size_t{512} << (i % 12), stream));
      fill(made.back(), 42, stream);
      for (const AddressSpan& span : taken) {
        EXPECT_FALSE(span.overlaps(made.back())) << "shared with a graph";
      }
    }
    return made;
  }
  static void expect_42(const std::vector<Buffer>& buffers, const Stream& stream) {
    for (const Buffer& buffer : buffers) EXPECT_TRUE(holds(buffer, 42, stream));
  }

  std::unique_ptr<DeviceAllocator> allocator_;
  std::vector<std::int64_t> before_;
};

TEST_P(CaptureMemoryTest, TemporariesAreTheCapturesAlone) {
  const Stream stream = Stream::from_pool();
  const Stream other = Stream::from_pool();
  // Free blocks of the same size, in every cache there is.
  for (const Stream& warm : {stream, other}) {
    const Buffer warmed = make(kBytes, warm);
  }
  CapturedGraph graph(stream, begun());
  std::vector<AddressSpan> spans;
  {
    const Buffer temporary = make(kBytes, stream);
    fill(temporary, 2, stream);
    spans.emplace_back(temporary);
  }
  {
    const Buffer again = make(kBytes, stream);
    EXPECT_TRUE(spans[0].overlaps(again)) << "not reused inside";
    const Buffer second = make(3 * kMib, stream);
    fill(second, 3, stream);
    spans.emplace_back(second);
  }
  std::vector<Buffer> during = fill_outside(spans, other);
  graph.end();
  const std::vector<Buffer> after = fill_outside(spans, stream);
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  expect_42(during, other);
  expect_42(after, stream);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, OutputsStayAndReturnToTheirGraph) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  Buffer output = make(kBytes, stream);
  fill(output, 5, stream);
  graph.end();
  fill(output, 0, stream);
  graph.replay(stream);
  EXPECT_TRUE(holds(output, 5, stream));
  const AddressSpan span(output);
  output.reset();  // a thread's cache would keep it for the next request
  const std::vector<Buffer> outside = fill_outside({span}, stream);
  graph.replay(stream);
  expect_42(outside, stream);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, OutputsOutliveTheirGraph) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  const Buffer output = make(kBytes, stream);
  fill(output, 5, stream);
  graph.end();
  graph.replay(stream);
  graph.destroy_and_wait();
  allocator_->empty_cache(Device::cuda(0));
  const std::vector<Buffer> outside = fill_outside({AddressSpan(output)}, stream);
  EXPECT_TRUE(holds(output, 5, stream));
}

TEST_P(CaptureMemoryTest, AFailedCaptureGivesItsMemoryBack) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  Buffer output = make(kBytes, stream);
  { const Buffer temporary = make(kMib, stream); }
  graph.spoil();
  EXPECT_TRUE(graph.wait_until_gone());
  output.reset();
  expect_balance();
}

TEST_P(CaptureMemoryTest, AnAbandonedCaptureGivesItsMemoryBack) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  { const Buffer temporary = make(kMib, stream); }
  graph.end();
  EXPECT_GT(reserved(), before_[0]);
  graph.destroy_and_wait();
  expect_balance();
}

TEST_P(CaptureMemoryTest, ACaptureWhoseStreamIsDestroyedGivesItsMemoryBack) {
  GANTRY_REQUIRE_SIM();  // on GPUs the program has to end it
  ForeignStream foreign;
  driver().begin_capture(foreign.stream().native(), CaptureMode::relaxed);
  { const Buffer temporary = make(kMib, foreign.stream()); }
  const std::shared_ptr<Capture> capture = capture_of(foreign.stream());
  foreign.destroy();
  EXPECT_FALSE(capture->is_needed());
  expect_balance();
}

TEST_P(CaptureMemoryTest, SeveralDevicesTakePart) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(1));
  for (const Stream& warm : {first, second}) {
    const Buffer warmed = make(kBytes, warm);
  }
  CapturedGraph graph(first, begun());
  graph.fork(second);
  std::vector<AddressSpan> spans;
  for (const Stream& stream : {first, second}) {
    const Buffer temporary = make(kBytes, stream);
    fill(temporary, 2, stream);
    spans.emplace_back(temporary);
  }
  graph.end();
  const std::vector<Buffer> on_first = fill_outside({spans[0]}, first);
  const std::vector<Buffer> on_second = fill_outside({spans[1]}, second);
  second.synchronize();
  graph.replay(first);
  first.synchronize();
  expect_42(on_first, first);
  expect_42(on_second, second);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, CapturesAtOnceShareNothing) {
  std::latch under_way(2);
  std::latch captured(2);
  std::latch replayed(2);
  const auto work = [&](int value) {
    const Stream own = Stream::from_pool();
    CapturedGraph graph(own, begun(), CaptureMode::thread_local_);
    under_way.arrive_and_wait();
    const Buffer output = make(kBytes, own);
    {
      const Buffer temporary = make(kBytes, own);
      fill(temporary, value, own);
      driver().copy(output.data(), temporary.data(), kBytes, own.native());
    }
    graph.end();
    captured.arrive_and_wait();
    for (int i = 0; i < 20; ++i) {
      graph.replay(own);
      EXPECT_TRUE(holds(output, value, own));
    }
    replayed.arrive_and_wait();
    graph.destroy_and_wait();
  };
  std::thread other(work, 1);
  work(2);
  other.join();
}

TEST_P(CaptureMemoryTest, BlocksFromOutsideThatAreFreedInsideStayWithTheGraph) {
  const Stream stream = Stream::from_pool();
  Buffer outside = make(kBytes, stream);
  const AddressSpan span(outside);
  CapturedGraph graph(stream, begun());
  { const Buffer seen = make(512, stream); }
  fill(outside, 7, stream);
  outside.reset();
  graph.end();
  allocator_->empty_cache(Device::cuda(0));
  {
    const std::vector<Buffer> later = fill_outside({span}, stream);
    graph.replay(stream);
    expect_42(later, stream);
  }
  EXPECT_GT(allocator_->stats(0).active_bytes.all.current, 0);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, StreamsThatJoinOnlyThroughEventsKeepTheirBlocks) {
  const Stream origin = Stream::from_pool();
  const Stream side = Stream::from_pool();
  Buffer outside = make(kBytes, side);
  const AddressSpan span(outside);
  CapturedGraph graph(origin, begun());
  graph.fork(side);  // nobody asks for memory of it
  fill(outside, 7, side);
  outside.reset();
  graph.end();
  const std::vector<Buffer> later = fill_outside({span}, side);
  side.synchronize();
  graph.replay(origin);
  origin.synchronize();
  expect_42(later, side);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, ARecordedStreamIsEnoughToKeepABlock) {
  const Stream own = Stream::default_stream();
  const Stream stream = Stream::from_pool();
  Buffer outside = make(kBytes, own);
  const AddressSpan span(outside);
  own.synchronize();
  CapturedGraph graph(stream, begun());  // nobody asks for memory of it
  fill(outside, 7, stream);
  allocator_->record_stream(outside.block(), stream);
  outside.reset();
  graph.end();
  stream.synchronize();
  const std::vector<Buffer> later = fill_outside({span}, own);
  own.synchronize();
  graph.replay(stream);
  stream.synchronize();
  expect_42(later, own);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, BlocksThatOtherStreamsUseAreNotReusedInTheCapture) {
  const Stream origin = Stream::from_pool();
  const Stream side = Stream::from_pool();
  CapturedGraph graph(origin, begun());
  graph.fork(side);
  Buffer shared = make(kBytes, origin);
  const AddressSpan span(shared);
  side.wait(origin);
  fill(shared, 1, side);
  shared.block().allocator->record_stream(shared.block(), side);
  shared.reset();
  const Buffer next = make(kBytes, origin);
  EXPECT_FALSE(span.overlaps(next)) << "the side stream still fills it at every run";
  // Nor is what one stream frees the other one's.
  { const Buffer freed = make(2 * kBytes, origin); }
  const Buffer far = make(2 * kBytes, side);
  fill(far, 2, side);
  graph.end();
  graph.replay(origin);
  EXPECT_TRUE(holds(far, 2, origin));
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, NeitherRecoveryNorEmptyCacheTakesItsMemory) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  const Buffer output = make(kBytes, stream);
  {
    const Buffer temporary = make(3 * kMib, stream);
    fill(temporary, 9, stream);
    driver().copy(output.data(), temporary.data(), kBytes, stream.native());
  }
  graph.end();
  const std::int64_t held = reserved();
  allocator_->empty_cache(Device::cuda(0));
  EXPECT_GE(reserved(), before_[0] + static_cast<std::int64_t>(3 * kMib));
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  allocator_->set_fraction(static_cast<double>(held + static_cast<std::int64_t>(kMib)) / total, 0);
  EXPECT_THROW(static_cast<void>(make(static_cast<std::size_t>(held) + 2 * kMib, stream)),
               OutOfMemoryError);
  allocator_->set_fraction(1, 0);
  graph.replay(stream);
  EXPECT_TRUE(holds(output, 9, stream));
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, TheNextCaptureUsesTheMemoryOfAGoneGraph) {
  const Stream stream = Stream::from_pool();
  std::int64_t first = 0;
  for (int i = 0; i < 10; ++i) {
    CapturedGraph graph(stream, begun());
    Buffer output = make(kBytes, stream);
    { const Buffer temporary = make(3 * kMib, stream); }
    graph.end();
    graph.replay(stream);
    stream.synchronize();
    output.reset();
    graph.destroy_and_wait();
    stream.synchronize();  // what was freed after the capture is idle
    if (i == 0) first = reserved();
    EXPECT_EQ(reserved(), first) << "capture " << i;
  }
}

TEST_P(CaptureMemoryTest, AGraphThatStillRunsKeepsItsMemory) {
  const Stream stream = Stream::from_pool();
  const Stream runs = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  {
    const Buffer temporary = make(kMib, stream);
    fill(temporary, 1, stream);
  }
  graph.end();
  {
    const StreamHold hold(runs);
    graph.replay(runs);
    graph.destroy();
    EXPECT_TRUE(graph.is_needed());
    const std::vector<Buffer> outside = fill_outside({}, stream);
    EXPECT_GT(reserved(), before_[0]);
  }
  EXPECT_TRUE(graph.wait_until_gone());
}

TEST_P(CaptureMemoryTest, AGraphInAGraphKeepsItsMemory) {
  GANTRY_REQUIRE_SIM();  // in CUDA the nested graph is the driver's own copy
  const Stream stream = Stream::from_pool();
  CapturedGraph inner(stream, begun());
  {
    const Buffer temporary = make(kBytes, stream);
    fill(temporary, 3, stream);
  }
  inner.end();
  CapturedGraph outer(stream, begun());
  inner.replay(stream);
  outer.end();
  inner.destroy();
  EXPECT_TRUE(inner.is_needed());
  outer.destroy_and_wait();
  EXPECT_TRUE(inner.wait_until_gone());
}

TEST_P(CaptureMemoryTest, ForeignStreamsAreCaptured) {
  std::optional<ForeignStream> foreign(std::in_place);
  const Stream stream = foreign->stream();
  const Stream runs = Stream::from_pool();
  { const Buffer warmed = make(kBytes, stream); }
  CapturedGraph graph(stream, begun());
  Buffer output = make(kBytes, stream);
  std::optional<AddressSpan> span;
  {
    const Buffer temporary = make(kBytes, stream);
    fill(temporary, 4, stream);
    driver().copy(output.data(), temporary.data(), kBytes, stream.native());
    span.emplace(temporary);
  }
  graph.end();
  graph.replay(runs);
  EXPECT_TRUE(holds(output, 4, runs));
  const AddressSpan place(output);
  output.reset();
  foreign.reset();
  const std::vector<Buffer> outside = fill_outside({*span, place}, runs);
  graph.replay(runs);
  expect_42(outside, runs);
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, AnyThreadMayFree) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream, begun());
  Buffer temporary = make(kBytes, stream);
  fill(temporary, 6, stream);
  const AddressSpan span(temporary);
  std::thread([&] { temporary.reset(); }).join();
  graph.end();
  std::thread([&] {
    const std::vector<Buffer> outside = fill_outside({span}, stream);
    graph.replay(stream);
    expect_42(outside, stream);
  }).join();
  graph.destroy_and_wait();
}

TEST_P(CaptureMemoryTest, EveryDriverCallMayFail) {
  const Stream stream = Stream::from_pool();
  const auto scenario = [&] {
    CapturedGraph graph(stream, begun());
    try {
      Buffer outside = make(kBytes, stream);
      Buffer output = make(3 * kMib, stream);
    } catch (const Error&) {
      graph.end();
      graph.destroy_and_wait();
      throw;
    }
    graph.end();
    graph.destroy_and_wait();
  };
  FaultDriver faults;
  scenario();
  const auto counts = faults.counts();
  for (const std::string call : {"is_capturing", "capture_id", "retain_by_capture", "allocate",
                                 "reserve_address", "create_chunk", "map_chunk", "set_access"}) {
    const auto found = counts.find(call);
    const std::uint64_t count = found == counts.end() ? 0 : found->second;
    for (std::uint64_t nth = 1; nth <= count; ++nth) {
      SCOPED_TRACE(call + " " + std::to_string(nth));
      faults.reset_counts();
      faults.fail_on(call, nth);
      try {
        scenario();
      } catch (const Error&) {
        faults.fail_nothing();
        if (driver().is_capturing(stream.native())) {
          driver().destroy_graph(driver().end_capture(stream.native()));
        }
      }
      faults.fail_nothing();
      expect_balance();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CaptureMemoryTest,
                         ::testing::Combine(::testing::Values("vmm", "native", "async"),
                                            ::testing::Values(Begun::by_gantry, Begun::by_others)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Begun::by_gantry ? "" : "_by_others");
                         });

}  // namespace
}  // namespace gantry::memory
