// The process's own allocators in captures: pools of the program, page-locked memory, snapshots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/snapshot.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/sanitizer.hpp>

#include "streams/capture.hpp"
#include "tests/memory/captures/capture_fixture.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::AddressSpan;
using gantry::testing::allocator_calls;
using gantry::testing::CapturedGraph;
using gantry::testing::FaultDriver;
using gantry::testing::fill;
using gantry::testing::holds;
using gantry::testing::kKib;
using gantry::testing::StreamHold;

constexpr std::size_t kBytes = 64 * kKib;

class CapturePoolsTest : public gantry::testing::HeapTest {};

TEST_F(CapturePoolsTest, ACaptureTakesNothingFromThePoolsOfTheProgram) {
  const Stream stream = Stream::from_pool();
  MemPool pool(Device::cuda(0));
  { const Buffer warmed = pool.allocate(stream, kBytes); }
  CapturedGraph graph(stream);
  std::vector<AddressSpan> spans;
  {
    const MemPoolGuard guard(pool);
    const Buffer guarded = allocate(stream, kBytes);
    const Buffer asked = pool.allocate(stream, kBytes);
    fill(guarded, 1, stream);
    fill(asked, 2, stream);
    spans = {AddressSpan(guarded), AddressSpan(asked)};
    EXPECT_EQ(pool.use_count(), 0u);
  }
  graph.end();
  std::vector<Buffer> outside;
  for (int i = 0; i < 4; ++i) {
    outside.push_back(pool.allocate(stream, kBytes));
    fill(outside.back(), 42, stream);
    for (const AddressSpan& span : spans) EXPECT_FALSE(span.overlaps(outside.back()));
  }
  graph.replay(stream);
  for (const Buffer& buffer : outside) EXPECT_TRUE(holds(buffer, 42, stream));
  graph.destroy_and_wait();
  outside.clear();
  empty_cache();
}

TEST_F(CapturePoolsTest, PointersOfCapturesAreFreedAsOthers) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream);
  void* data = allocate_raw(kBytes, stream);
  driver().fill(data, 1, kBytes, stream.native());
  deallocate_raw(data);
  void* again = allocate_raw(kBytes, stream);
  EXPECT_EQ(again, data) << "not reused inside";
  graph.end();
  deallocate_raw(again);
  void* outside = allocate_raw(kBytes, stream);
  EXPECT_NE(outside, data);
  deallocate_raw(outside);
  graph.destroy_and_wait();
  empty_cache();
}

// The first graph has no live block, but each of its launches writes to the memory.
TEST_F(CapturePoolsTest, IdleMemoryOfAGraphGoesToNoOtherCapture) {
  const Stream stream = Stream::from_pool();
  const auto capture_a_temporary = [&](int value) {
    const Buffer temporary = allocate(stream, kBytes);
    fill(temporary, value, stream);
    return AddressSpan(temporary);
  };
  CapturedGraph first(stream);
  const AddressSpan theirs = capture_a_temporary(1);
  first.end();
  {
    CapturedGraph second(stream);
    const Buffer temporary = allocate(stream, kBytes);
    EXPECT_FALSE(theirs.overlaps(temporary));
    second.end();
    EXPECT_EQ(stats().num_pools, 2);
    second.destroy_and_wait();
  }
  first.destroy_and_wait();
  // Nothing can launch the graph any more.
  CapturedGraph third(stream);
  const Buffer again = allocate(stream, kBytes);
  third.end();
  EXPECT_EQ(stats().num_pools, 1);
  third.destroy_and_wait();
}

// The program may launch the later graph on any stream, so the order of one stream is not enough.
TEST_F(CapturePoolsTest, ACaptureTakesNoPoolThatIsStillInUse) {
  enum class Left { live_block, own_work, work_of_another_stream };
  for (const Left left : {Left::live_block, Left::own_work, Left::work_of_another_stream}) {
    SCOPED_TRACE(static_cast<int>(left));
    const Stream stream = Stream::from_pool();
    const Stream user = Stream::from_pool();
    std::optional<Buffer> output;
    {
      CapturedGraph first(stream);
      output = allocate(stream, kBytes);
      first.end();
      first.destroy_and_wait();
    }
    const AddressSpan span(*output);
    StreamHold work(left == Left::own_work ? stream : user);
    if (left == Left::work_of_another_stream) {
      allocator(Device::cuda(0)).record_stream(output->block(), user);
    }
    if (left != Left::live_block) output.reset();
    CapturedGraph second(stream);
    std::vector<Buffer> buffers;
    buffers.push_back(allocate(stream, kBytes));
    output.reset();
    buffers.push_back(allocate(stream, kBytes));
    for (const Buffer& buffer : buffers) EXPECT_FALSE(span.overlaps(buffer));
    second.end();
    buffers.clear();
    work.release();
    user.synchronize();
    if (left == Left::work_of_another_stream) {
      static_cast<void>(allocate(user, kBytes));  // looks at what is over by now
      EXPECT_EQ(stats().pending_bytes, 0) << "kept for the second graph";
    }
    second.destroy_and_wait();
    stream.synchronize();
    empty_cache();
  }
}

TEST_F(CapturePoolsTest, CapturesOfOneHandleShareMemory) {
  const Stream stream = Stream::from_pool();
  const MemPoolId handle = graph_pool_handle();
  std::vector<std::shared_ptr<Capture>> captures;
  std::vector<AddressSpan> spans;
  std::vector<NativeGraph> graphs;
  for (const MemPoolId pool :
       {handle, handle, graph_pool_handle(), MemPoolId::none, MemPoolId::none, handle}) {
    captures.push_back(begin_capture(stream, CaptureMode::relaxed, pool));
    {
      const Buffer temporary = allocate(stream, kBytes);
      fill(temporary, 1, stream);
      spans.emplace_back(temporary);
    }
    graphs.push_back(driver().end_capture(stream.native()));
  }
  for (const std::size_t sharing : {1, 5}) {
    EXPECT_EQ(captures[sharing], captures[0]);
    EXPECT_EQ(spans[sharing].begin, spans[0].begin);
  }
  for (const std::size_t alone : {2, 3, 4})
    EXPECT_EQ(std::ranges::count(captures, captures[alone]), 1);
  EXPECT_EQ(stats().num_pools, 4);
  for (const NativeGraph graph : graphs) {
    EXPECT_TRUE(captures[0]->is_needed()) << "the last graph is there";
    driver().destroy_graph(graph);
  }
  EXPECT_TRUE(gantry::testing::eventually([&] { return !captures[0]->is_needed(); }));
  empty_cache();
}

TEST_F(CapturePoolsTest, SnapshotsShowWhichMemoryIsACaptures) {
  const Stream stream = Stream::from_pool();
  CapturedGraph graph(stream);
  const Buffer output = allocate(stream, kBytes);
  graph.end();
  const auto address = reinterpret_cast<std::uintptr_t>(output.data());
  const Snapshot shown = snapshot();
  const auto segment = std::ranges::find_if(shown.segments, [&](const SegmentInfo& info) {
    return info.address <= address && address < info.address + info.total_bytes;
  });
  ASSERT_NE(segment, shown.segments.end());
  EXPECT_GT(segment->pool_id.first, 0);
  EXPECT_EQ(segment->pool_id.second, 0);
  EXPECT_EQ(stats().num_pools, 1);
  graph.destroy_and_wait();
  EXPECT_EQ(stats().num_pools, 0);
}

TEST_F(CapturePoolsTest, OutsideOfCapturesAHitAsksOnlyWhetherItsStreamIsCaptured) {
  if (sanitizer::mode() != sanitizer::Mode::off) GTEST_SKIP() << "the stream sanitizer asks, too";
  for (const Stream& stream : {Stream::default_stream(), Stream::from_pool()}) {
    { const Buffer warmed = allocate(stream, kBytes); }
    const FaultDriver driver;
    for (int i = 0; i < 10; ++i) {
      const Buffer hit = allocate(stream, kBytes);
    }
    EXPECT_EQ(allocator_calls(driver), 0u);
    if (!poisons_device_memory()) {
      EXPECT_EQ(driver.calls("is_capturing"), stream.native_handle() == nullptr ? 0u : 10u);
    }
  }
}

TEST_F(CapturePoolsTest, PageLockedMemoryStaysWithTheGraphsThatUseIt) {
  const Stream stream = Stream::from_pool();
  const Buffer device = allocate(stream, kBytes);
  fill(device, 7, stream);
  stream.synchronize();
  Buffer host = pinned(kBytes);
  const AddressSpan span(host);
  CapturedGraph graph(stream);
  driver().copy(host.data(), device.data(), kBytes, stream.native());
  host.block().allocator->record_stream(host.block(), stream);
  host.reset();
  graph.end();
  const auto fill_outside = [&] {
    std::vector<Buffer> outside;
    for (int i = 0; i < 50; ++i) {
      outside.push_back(pinned(kBytes));
      std::fill_n(static_cast<std::uint8_t*>(outside.back().data()), kBytes, 42);
    }
    return outside;
  };
  const auto is_shared = [&](const std::vector<Buffer>& outside) {
    return std::ranges::any_of(outside, [&](const Buffer& one) { return span.overlaps(one); });
  };
  {
    const std::vector<Buffer> outside = fill_outside();
    EXPECT_FALSE(is_shared(outside));
    pinned_allocator().empty_cache(Device::cpu());
    graph.replay(stream);
    stream.synchronize();
    for (const Buffer& buffer : outside) {
      const auto* bytes = static_cast<const std::uint8_t*>(buffer.data());
      EXPECT_TRUE(std::all_of(bytes, bytes + kBytes, [](auto byte) { return byte == 42; }));
    }
  }
  graph.destroy_and_wait();
  stream.synchronize();
  EXPECT_TRUE(is_shared(fill_outside())) << "lost after the graph was gone";
}

}  // namespace
}  // namespace gantry::memory
