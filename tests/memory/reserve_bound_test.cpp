// The memory that allocators hold for programs of several streams: at most twice what is in use at
// a time, and one chunk. GANTRY_CAMPAIGN_STEPS makes the random programs longer.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/oom/reserve_bound.hpp"
#include "tests/memory/bound_program.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::Begun;
using gantry::testing::BoundProgram;
using gantry::testing::CapturedGraph;
using gantry::testing::kMib;

constexpr std::size_t kBlock = 8 * kMib;
// Under the limit of these tests vmm takes chunks of 2 MiB. A segment of backend native may be 20
// MiB larger than its block, one of the driver's pool 32 MiB, and page-locked memory comes in
// megabytes.
constexpr std::size_t kVmmChunk = 2 * kMib;
constexpr std::size_t kNativeSegment = 20 * kMib;
constexpr std::size_t kPoolPiece = 32 * kMib;
constexpr std::size_t kPinnedSegment = kMib;
// Bytes by which the blocks of the most that was in use may be rounded up.
constexpr std::size_t kRoundedUp = std::size_t{4} << 10;
// Parts of chunks and segments beside blocks in use: of the common pool, a private one, and one of
// a capture, of which the graph may use a part; of segments for small blocks, too. One more is of a
// block whose work has ended since the allocator looked, as it happens on busy machines.
constexpr std::size_t kPartlyUsed = 6;

class ReserveBoundTest : public gantry::testing::HeapTest {
 protected:
  static std::unique_ptr<DeviceAllocator> make(std::string_view backend) {
    AllocConfig config;
    const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
    config.fraction = std::min(1.0, 8192.0 * kMib / total);
    return make_allocator(backend, config);
  }
  static std::size_t chunk_of(std::string_view backend) {
    return backend == "vmm" ? kVmmChunk : backend == "native" ? kNativeSegment : kPoolPiece;
  }
  static std::size_t steps() {
    return static_cast<std::size_t>(
        env::get_int("GANTRY_CAMPAIGN_STEPS", 1, 1'000'000'000).value_or(12'500));
  }
  static std::vector<Stream> some_streams(std::size_t count) {
    std::vector<Stream> streams = {Stream::default_stream()};
    while (streams.size() < count) streams.push_back(Stream::from_pool());
    return streams;
  }
  static std::size_t pinned_bytes() {
    return static_cast<std::size_t>(host_memory_stats().allocated_bytes.current);
  }
};

class BackendBoundTest : public ReserveBoundTest,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  // Runs `round` often. Each round has one block in use at a time, or two, and all work is done at
  // its end. No call tells gantry so.
  template <class Round>
  static void expect_bound(DeviceAllocator& allocator, std::size_t in_use, Round&& round) {
    for (int i = 0; i < 200; ++i) {
      round();
      driver().synchronize_device(0);
      ASSERT_LE(allocator.stats(0).reserved_bytes.all.current, 2 * in_use + chunk_of(GetParam()))
          << "in round " << i;
    }
    allocator.empty_cache(Device::cuda(0));
  }
};

TEST_P(BackendBoundTest, BlocksThatASecondStreamUsedAreFoundAgain) {
  const auto allocator = make(GetParam());
  const Stream first = Stream::default_stream();
  const Stream second = Stream::from_pool();
  for (const bool until_free : {true, false}) {
    expect_bound(*allocator, kBlock, [&] {
      Block block = allocator->allocate(first, kBlock);
      second.wait(first);
      driver().fill(block.data, 1, 64, second.native());
      if (until_free) {
        allocator->record_stream(block, second);
      } else {
        allocator->record_use(block, second);
      }
      allocator->deallocate(block);
    });
  }
}

TEST_P(BackendBoundTest, BlocksThatWaitForSeveralStreamsAreFoundAgain) {
  const auto allocator = make(GetParam());
  const std::vector<Stream> streams = some_streams(4);
  std::size_t turn = 0;
  expect_bound(*allocator, kBlock, [&] {
    const Stream& own = streams[turn++ % streams.size()];
    Block block = allocator->allocate(own, kBlock);
    auto* part = static_cast<std::byte*>(block.data);  // of one stream
    for (const Stream& user : streams) {
      if (user == own) continue;
      user.wait(own);
      driver().fill(part += 64, 1, 64, user.native());
      allocator->record_stream(block, user);
    }
    allocator->deallocate(block);
  });
}

TEST_P(BackendBoundTest, TemporariesOfASecondStreamAreFoundAgain) {
  const auto allocator = make(GetParam());
  const Stream first = Stream::default_stream();
  const Stream second = Stream::from_pool();
  expect_bound(*allocator, 2 * kBlock, [&] {
    Block block = allocator->allocate(first, kBlock);
    second.wait(first);
    allocator->record_stream(block, second);
    Block temporary = allocator->allocate(second, kBlock);
    driver().copy(temporary.data, block.data, kBlock, second.native());
    allocator->deallocate(temporary);
    allocator->deallocate(block);
  });
}

TEST_P(BackendBoundTest, StreamsTakeTurnsWithOneBlock) {
  const auto allocator = make(GetParam());
  const std::vector<Stream> streams = some_streams(4);
  expect_bound(*allocator, kBlock, [&] {
    for (const Stream& stream : streams) {
      Block block = allocator->allocate(stream, kBlock);
      driver().fill(block.data, 1, 64, stream.native());
      allocator->deallocate(block);
      driver().synchronize_device(0);
    }
  });
}

TEST_P(BackendBoundTest, ChangingSizesDoNotAddUp) {
  const auto allocator = make(GetParam());
  const Stream stream = Stream::from_pool();
  const std::size_t in_use = 64 * kMib;
  std::size_t bytes = kMib;
  expect_bound(*allocator, in_use, [&] {
    std::vector<Block> blocks;
    for (std::size_t sum = 0; sum + bytes <= in_use; sum += bytes) {
      blocks.push_back(allocator->allocate(stream, bytes));
    }
    for (Block& block : blocks) allocator->deallocate(block);
    bytes = bytes >= 32 * kMib ? kMib : bytes + bytes / 2;
    bytes -= bytes % 512;
  });
}

TEST_P(BackendBoundTest, CapturesOfChangingSizesDoNotAddUp) {
  const auto allocator = make(GetParam());
  // In turn: an allocator of a test does not ask a stream about its work before a capture begins.
  const std::vector<Stream> streams = some_streams(3);
  constexpr std::size_t kLargest = 40 * kMib;
  std::size_t bytes = 0;
  std::size_t turn = 0;
  expect_bound(*allocator, 2 * kLargest, [&] {
    const Stream& stream = streams[1 + turn++ % 2];
    bytes = bytes % kLargest + kMib;
    CapturedGraph graph(stream, Begun::by_gantry);
    Buffer input(allocator->allocate(stream, bytes));
    Buffer output(allocator->allocate(stream, bytes));
    driver().fill(input.data(), 1, bytes, stream.native());
    driver().copy(output.data(), input.data(), bytes, stream.native());
    graph.end();
    graph.replay(stream);
    driver().synchronize_stream(stream.native());
    input.reset();
    output.reset();
    graph.destroy_and_wait();
  });
}

// A pool that a later capture gets has memory that its graph does not use.
TEST_P(BackendBoundTest, AGraphPinsWhatItsCaptureUsed) {
  const auto allocator = make(GetParam());
  const Stream stream = Stream::from_pool();
  const auto reserved = [&] { return allocator->stats(0).reserved_bytes.all.current; };
  const Stream other = Stream::from_pool();
  const auto capture = [&](CapturedGraph& graph, const Stream& stream, std::size_t bytes) {
    const Buffer block(allocator->allocate(stream, bytes));
    driver().fill(block.data(), 1, bytes, stream.native());
    graph.end();
  };
  {
    CapturedGraph large(stream, Begun::by_gantry);
    capture(large, stream, 64 * kMib);
    large.destroy_and_wait();
  }
  CapturedGraph small(other, Begun::by_gantry);
  capture(small, other, kMib);
  driver().synchronize_device(0);
  allocator->empty_cache(Device::cuda(0));
  EXPECT_GE(reserved(), kMib);
  EXPECT_LE(reserved(), chunk_of(GetParam()));
  small.replay(other);
  driver().synchronize_stream(other.native());
  small.destroy_and_wait();
}

// Memory that the capture has used grows into a hole, between it and memory that is not used.
TEST_P(BackendBoundTest, ABlockOfACaptureGrowsAsAWhole) {
  const auto allocator = make(GetParam());
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  const auto capture = [&](const Stream& stream, const std::vector<std::size_t>& sizes) {
    CapturedGraph graph(stream, Begun::by_gantry);
    for (const std::size_t bytes : sizes) {
      const Buffer block(allocator->allocate(stream, bytes));
      ASSERT_GE(block.bytes(), bytes);
      driver().fill(block.data(), 1, bytes, stream.native());
    }
    graph.end();
    graph.replay(stream);
    driver().synchronize_stream(stream.native());
    allocator->verify();
    graph.destroy_and_wait();
  };
  for (int round = 0; round < 3; ++round) {
    capture(first, {2 * kMib, 6 * kMib, 20 * kMib, 7 * kMib, 50 * kMib});
    capture(second, {kMib, 3 * kMib, 4 * kMib, 30 * kMib, 70 * kMib});
    driver().synchronize_device(0);
    if (round == 1) allocator->empty_cache(Device::cuda(0));
  }
}

TEST_P(BackendBoundTest, RandomProgramsKeepTheBound) {
  const auto allocator = make(GetParam());
  const std::string_view backend = GetParam();
  const bool has_pools = backend != "async";
  for (std::size_t count = 2; count <= 4; ++count) {
    BoundProgram::Source source{.allocator = allocator.get()};
    source.reserved = [&] {
      return static_cast<std::size_t>(allocator->stats(0).reserved_bytes.all.current);
    };
    source.frees_on_sync = !has_pools;
    source.holds = backend != "native";  // segments are released while the device has no work
    if (backend == "native") source.most_used = 128 * kMib;
    Pool* pool = nullptr;
    if (has_pools) {
      auto& heaps = dynamic_cast<HeapAllocator&>(*allocator);
      pool = &heaps.make_pool(0, {.use_on_oom = true});
      source.pools.emplace_back([&heaps, pool](const Stream& stream, std::size_t bytes) {
        return heaps.allocate_from(*pool, stream, bytes, kDefaultAlignment);
      });
    }
    BoundProgram program(source, some_streams(count), static_cast<unsigned>(count));
    for (std::size_t step = 0; step < steps() / 3; ++step) {
      program.step();
      if (step % 100 == 0) allocator->verify();
    }
    program.finish();
    EXPECT_LE(program.most_above(), kPartlyUsed * chunk_of(backend))
        << count << " streams, in use " << program.most_used() << ", reserved "
        << program.most_reserved();
    RecordProperty("reserved_of_" + std::to_string(count),
                   std::to_string(program.most_reserved() * 100 / program.most_used()));
    if (pool != nullptr) pool->heap->destroy_pool(*pool);
    allocator->empty_cache(Device::cuda(0));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendBoundTest, ::testing::Values("vmm", "native", "async"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ReserveBoundTest, PageLockedMemoryOfCopiesIsFoundAgain) {
  pinned_allocator().empty_cache(Device::cpu());
  const std::size_t before = pinned_bytes();
  const Stream stream = Stream::from_pool();
  const Buffer on_device = allocate(stream, kBlock);
  for (int i = 0; i < 200; ++i) {
    Buffer host = pinned(kBlock);
    driver().copy(on_device.data(), host.data(), kBlock, stream.native());
    host.block().allocator->record_use(host.block(), stream);
    host.reset();
    driver().synchronize_device(0);
    ASSERT_LE(pinned_bytes() - before, 2 * kBlock + kPinnedSegment) << "in round " << i;
  }
}

TEST_F(ReserveBoundTest, RandomProgramsOfPageLockedMemoryKeepTheBound) {
  for (std::size_t count = 2; count <= 4; ++count) {
    pinned_allocator().empty_cache(Device::cpu());
    BoundProgram::Source source{.allocator = &pinned_allocator()};
    source.reserved = pinned_bytes;
    source.has_own_streams = false;
    source.holds = false;
    source.captures = false;
    BoundProgram program(source, some_streams(count), static_cast<unsigned>(count));
    for (std::size_t step = 0; step < steps() / 3; ++step) program.step();
    program.finish();
    EXPECT_LE(program.most_above(), kPartlyUsed * kPinnedSegment + kRoundedUp)
        << count << " streams, in use " << program.most_used() << ", reserved "
        << program.most_reserved();
  }
}

TEST_F(ReserveBoundTest, BoundIsTwiceTheMostInUse) {
  ReserveBound bound;
  EXPECT_EQ(bound.excess(7), 7u);
  bound.note_use(10);
  bound.note_use(3);
  EXPECT_EQ(bound.bytes(), 20u);
  EXPECT_EQ(bound.excess(20), 0u);
  EXPECT_EQ(bound.excess(21), 1u);
  bound.note_use(~std::size_t{0} - 1);
  EXPECT_EQ(bound.bytes(), ~std::size_t{0});
  bound.reset();
  EXPECT_EQ(bound.bytes(), 0u);
}

TEST_F(ReserveBoundTest, ADeviceWithWorkIsNotIdle) {
  const std::vector<int> devices = {0};
  driver().synchronize_device(0);
  EXPECT_TRUE(await_idle(devices));
  const Stream stream = Stream::from_pool();
  static_cast<void>(StreamClock::of(stream));
  gantry::testing::StreamHold hold(stream);
  EXPECT_FALSE(await_idle(devices));
}

}  // namespace
}  // namespace gantry::memory
