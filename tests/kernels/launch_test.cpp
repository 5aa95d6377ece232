#include <gantry/kernels/launch.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/uses.hpp>

#include "tests/kernels/own_kernels.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

class LaunchTest : public testing::DeviceTest {
 protected:
  const Device device_ = Device::cuda(0);

  [[nodiscard]] Stream stream() const { return Stream::current(device_); }
  [[nodiscard]] Tensor numbers(std::int64_t count) const {
    return full({count}, -1, {.dtype = i64, .device = device_});
  }
  [[nodiscard]] Tensor copied(const std::vector<std::int64_t>& values) const {
    return tensor(values, {.dtype = i64, .device = device_});
  }
};

std::vector<std::int64_t> some_values(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(i * 7919 % 1009) - 500;
  }
  return values;
}

TEST_F(LaunchTest, LoopCallsEveryIndexOnce) {
  for (const std::int64_t n : {1, 2, 255, 256, 257, 1000, 100003}) {
    const Tensor out = numbers(n + 1);
    own::fill(stream(), n, out.data_ptr<std::int64_t>());
    const auto result = out.to_vector<std::int64_t>();
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(result[static_cast<std::size_t>(i)], 3 * i + 1);
    EXPECT_EQ(result.back(), -1) << n;
  }
}

// The threads of a block without barriers share a stack; those of the next block must not.
struct BarrierInLaterBlocks {
  std::int64_t* out;
  void operator()(Block& block) const {
    if (block.index().x % 2 == 0) return;
    block.barrier();
    out[block.flat_index()] = block.any(block.thread().x == 1) ? 7 : 8;
  }
};

TEST_F(LaunchTest, BlocksWithAndWithoutBarriersFollowEachOther) {
  GANTRY_REQUIRE_SIM();  // compiled for the host only
  const Tensor out = numbers(4 * 5);
  launch(stream(), 4, BlockSize(5), uses(out), BarrierInLaterBlocks{out.data_ptr<std::int64_t>()});
  const auto result = out.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], i / 5 % 2 == 0 ? -1 : 7);
}

TEST_F(LaunchTest, LoopOfNothingTouchesNothing) {
  own::fill(stream(), 0, nullptr);
  EXPECT_NO_THROW(stream().synchronize());
  EXPECT_ERROR(own::fill(stream(), -1, nullptr), InvalidArgument,
               "parallel_for: expected a number of calls of at least 0, but got -1");
}

TEST_F(LaunchTest, LoopGoesBeyond32Bits) {
  if (testing::kIsSanitized && platform() == Platform::simulated) {
    GTEST_SKIP() << "takes half a minute under a sanitizer";
  }
  const std::int64_t n = (std::int64_t{1} << 31) + 7;
  const Tensor out = numbers(3);
  own::write_last_three(stream(), n, out.data_ptr<std::int64_t>());
  EXPECT_EQ(out.to_vector<std::int64_t>(), (std::vector<std::int64_t>{n - 3, n - 2, n - 1}));
}

TEST_F(LaunchTest, ThreadsKnowTheirPlaces) {
  struct Case {
    Grid grid;
    BlockSize block;
  };
  for (const Case& c : {Case{1, 1}, Case{5, 33}, Case{{2, 3, 4}, {3, 2, 5}},
                        Case{{1, 7}, {1, 1, 64}}, Case{2, 1024}, Case{{2, 1, 2}, {2, 512, 1}}}) {
    const std::int64_t count = c.grid.x * c.grid.y * c.grid.z * c.block.x * c.block.y * c.block.z;
    const Tensor out = numbers(count);
    own::positions(stream(), c.grid, c.block, out.data_ptr<std::int64_t>());
    std::vector<std::int64_t> expected;
    for (std::int64_t bz = 0; bz < c.grid.z; ++bz)
      for (std::int64_t by = 0; by < c.grid.y; ++by)
        for (std::int64_t bx = 0; bx < c.grid.x; ++bx)
          for (std::int64_t tz = 0; tz < c.block.z; ++tz)
            for (std::int64_t ty = 0; ty < c.block.y; ++ty)
              for (std::int64_t tx = 0; tx < c.block.x; ++tx) {
                std::int64_t code = 0;
                for (const std::int64_t digit : {bx, by, bz, tx, ty, tz}) code = code * 100 + digit;
                expected.push_back(code * 1000000 + (c.grid.x + c.grid.y + c.grid.z) * 1000 +
                                   c.block.x + c.block.y + c.block.z);
              }
    EXPECT_EQ(out.to_vector<std::int64_t>(), expected);
  }
}

TEST_F(LaunchTest, SharedMemoryAndBarriersSum) {
  for (const std::int64_t threads : {1, 2, 3, 31, 32, 33, 100, 256, 257, 1023, 1024}) {
    const std::int64_t blocks = threads < 100 ? 9 : 3;
    const std::int64_t n = blocks * threads - threads / 2;  // the last block is not full
    const std::vector<std::int64_t> values = some_values(n);
    const Tensor in = copied(values);
    const Tensor out = numbers(blocks);
    own::block_sums(stream(), blocks, threads, in.data_ptr<std::int64_t>(), n,
                    out.data_ptr<std::int64_t>());
    std::vector<std::int64_t> expected(static_cast<std::size_t>(blocks), 0);
    for (std::int64_t i = 0; i < n; ++i) {
      expected[static_cast<std::size_t>(i / threads)] += values[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(out.to_vector<std::int64_t>(), expected) << threads;
  }
}

TEST_F(LaunchTest, ManyBarriersScan) {
  for (const std::int64_t threads : {1, 2, 7, 64, 129, 1024}) {
    std::vector<std::int64_t> values = some_values(threads);
    const Tensor in = copied(values);
    const Tensor out = numbers(threads);
    own::block_scan(stream(), threads, in.data_ptr<std::int64_t>(), out.data_ptr<std::int64_t>());
    std::partial_sum(values.begin(), values.end(), values.begin());
    EXPECT_EQ(out.to_vector<std::int64_t>(), values) << threads;
  }
}

TEST_F(LaunchTest, AtomicsCountAndAdd) {
  const Tensor counts = zeros({16}, {.dtype = i32, .device = device_});
  const Tensor total = zeros({1}, {.dtype = f64, .device = device_});
  own::histogram(stream(), 5000, counts.data_ptr<std::int32_t>(), total.data_ptr<double>());
  std::vector<std::int32_t> expected(16, 312);
  for (std::size_t i = 0; i < 8; ++i) ++expected[i];
  EXPECT_EQ(counts.to_vector<std::int32_t>(), expected);
  EXPECT_EQ(total.item<double>(), 5000.0 * 4999 / 2);
}

TEST_F(LaunchTest, SharedArraysAreAligned) {
  const Tensor out = numbers(2);
  own::shared_layout(stream(), out.data_ptr<std::int64_t>());
  EXPECT_EQ(out.to_vector<std::int64_t>(), (std::vector<std::int64_t>{8, 24}));
}

TEST_F(LaunchTest, SharedMemoryUpToTheDevicesLimit) {
  const std::size_t most = device_properties(device_).shared_memory_per_block_optin;
  const Tensor out = numbers(1);
  const auto count = static_cast<std::int64_t>(most / sizeof(double));
  own::take_shared(stream(), count, most, out.data_ptr<std::int64_t>());
  EXPECT_EQ(out.item<std::int64_t>(), count);
  EXPECT_ERROR(own::take_shared(stream(), 1, most + 1, nullptr), InvalidArgument,
               "launch: expected at most " + std::to_string(most) +
                   " bytes of shared memory in a block, but got " + std::to_string(most + 1));
}

TEST_F(LaunchTest, EmptyGridsLaunchNothing) {
  for (const Grid& grid : {Grid(0), Grid(3, 0), Grid(3, 3, 0)}) {
    own::positions(stream(), grid, 8, nullptr);
  }
  EXPECT_NO_THROW(stream().synchronize());
}

TEST_F(LaunchTest, SizesBeyondTheLimitsAreRefused) {
  struct Case {
    Grid grid;
    BlockSize block;
    const char* text;
  };
  const std::int64_t beyond = std::int64_t{1} << 31;
  const Case cases[] = {
      {-1, 1, "launch: expected grid.x from 0 to 2147483647, but got -1"},
      {beyond, 1, "launch: expected grid.x from 0 to 2147483647, but got 2147483648"},
      {{1, 65536}, 1, "launch: expected grid.y from 0 to 65535, but got 65536"},
      {{1, 1, 65536}, 1, "launch: expected grid.z from 0 to 65535, but got 65536"},
      {1, 0, "launch: expected block.x from 1 to 1024, but got 0"},
      {1, 1025, "launch: expected block.x from 1 to 1024, but got 1025"},
      {1, {1, -4}, "launch: expected block.y from 1 to 1024, but got -4"},
      {1, {1, 1, 65}, "launch: expected block.z from 1 to 64, but got 65"},
      {1, {33, 32}, "launch: expected at most 1024 threads in a block, but got 1056"},
  };
  for (const Case& c : cases) {
    EXPECT_ERROR(own::positions(stream(), c.grid, c.block, nullptr), InvalidArgument, c.text);
  }
  EXPECT_NO_THROW(stream().synchronize());
}

TEST_F(LaunchTest, WorkIsOrderedByItsStream) {
  const Tensor out = numbers(64);
  const Stream side = Stream::from_pool(device_);
  side.wait(stream());
  own::fill(side, 64, out.data_ptr<std::int64_t>());
  stream().wait(side);
  EXPECT_EQ(out.sum().item<std::int64_t>(), 3 * 64 * 63 / 2 + 64);
}

TEST_F(LaunchTest, CapturedLaunchesRunWithEachReplay) {
  const Tensor y = zeros({100}, {.device = device_});
  const Tensor x = ones({100}, {.device = device_});
  const Tensor sums = numbers(2);
  const Tensor in = copied(some_values(128));
  stream().synchronize();
  Graph graph;
  {
    GraphCapture capture(graph);
    own::axpy(Stream::current(device_), y, x, 2);
    own::block_sums(Stream::current(device_), 2, 64, in.data_ptr<std::int64_t>(), 128,
                    sums.data_ptr<std::int64_t>());
  }
  EXPECT_EQ(sums.to_vector<std::int64_t>(), (std::vector<std::int64_t>{-1, -1}));
  for (int replays = 1; replays <= 3; ++replays) {
    graph.replay();
    EXPECT_EQ(y.sum().item<float>(), 200.0F * static_cast<float>(replays));
  }
  EXPECT_EQ(sums.sum().item<std::int64_t>(), in.sum().item<std::int64_t>());
}

TEST_F(LaunchTest, UsedMemoryIsNotReusedBeforeTheLaunchIsDone) {
  memory::empty_cache();
  const Stream side = Stream::from_pool(device_);
  constexpr std::int64_t kCount = 1 << 16;
  Tensor y = zeros({kCount}, {.device = device_});
  const Tensor x = ones({kCount}, {.device = device_});
  const void* address = y.data();
  side.wait(stream());
  testing::StreamHold hold(side);
  own::axpy(side, y, x, 1);
  y = Tensor();
  // The side stream has not begun: the block may not serve the current stream yet.
  const Tensor other = zeros({kCount}, {.device = device_});
  EXPECT_NE(other.data(), address);
  hold.release();
  side.synchronize();
  EXPECT_EQ(other.sum().item<float>(), 0);
}

TEST_F(LaunchTest, UsesRefuseMemoryOutOfReach) {
  const Tensor x = ones({8}, {.device = device_});
  const Tensor host = ones({8});
  EXPECT_ERROR(own::axpy(stream(), x, host, 1), InvalidArgument,
               "parallel_for: expected tensors on cuda:0, or pinned, but got one in pageable CPU "
               "memory");
  EXPECT_ERROR(uses(x, Tensor()).check("launch", stream()), InvalidArgument,
               "launch: expected a defined tensor for argument 'uses'");
  const Tensor pinned = full({8}, 5, {.dtype = f32, .pinned = true});
  own::axpy(stream(), x, pinned, 1);
  EXPECT_EQ(x.sum().item<float>(), 48);
}

TEST_F(LaunchTest, TheSanitizerSeesUses) {
  const Stream side = Stream::from_pool(stream().device());
  sanitizer::enable(sanitizer::Mode::throw_);
  const Tensor x = ones({8}, {.dtype = f32, .device = stream().device()});
  const Tensor y = ones({8}, {.dtype = f32, .device = stream().device()});
  EXPECT_THROW(own::axpy(side, x, y, 1), RaceError);
  side.wait(stream());
  own::axpy(side, x, y, 1);
  const auto written = [&] { uses().writes(x).check("launch", stream()); };
  EXPECT_THROW(written(), RaceError);
  stream().wait(side);
  written();
  sanitizer::enable(sanitizer::Mode::off);
  EXPECT_EQ(x.sum().item<float>(), 16);
}

TEST_F(LaunchTest, UsesReachPeers) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(device_, Device::cuda(1))) GTEST_SKIP() << "needs peer access";
  const Tensor x = full({8}, 3, {.dtype = f32, .device = Device::cuda(1)});
  const Tensor y = zeros({8}, {.device = device_});
  stream().wait(Stream::current(Device::cuda(1)));
  own::axpy(stream(), y, x, 2);
  EXPECT_EQ(y.sum().item<float>(), 48);
}

TEST_F(LaunchTest, HostCompilersServeSimulatedDevicesOnly) {
  const Tensor out = numbers(10);
  auto* data = out.data_ptr<std::int64_t>();
  const auto square = [data](std::int64_t i) { data[i] = i * i; };
  if (platform() == Platform::cuda) {
    EXPECT_ERROR(parallel_for(stream(), 10, square), NotSupported,
                 "parallel_for: failed to launch on cuda:0: the functor is compiled for the host "
                 "only; compile its file with nvcc");
    EXPECT_ERROR(launch(stream(), 1, 1, [](Block&) {}), NotSupported, "compile its file with nvcc");
  } else {
    parallel_for(stream(), 10, uses(out), square);
    EXPECT_EQ(out.sum().item<std::int64_t>(), 285);
  }
}

// Faults of functors. A GPU has no exceptions, and a trap there ends the process's context.
class LaunchFaultTest : public LaunchTest {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    GANTRY_REQUIRE_SIM();
  }
};

TEST_F(LaunchFaultTest, AnExceptionBecomesTheStreamsError) {
  const Tensor out = numbers(10);
  own::throw_in_loop(stream(), 10, 4, out.data_ptr<std::int64_t>());
  own::fill(stream(), 10, out.data_ptr<std::int64_t>());  // dropped
  EXPECT_ERROR(stream().synchronize(), std::domain_error, "call 4");
  EXPECT_EQ(out.to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 1, 2, 3, -1, -1, -1, -1, -1, -1}));
}

TEST_F(LaunchFaultTest, AnExceptionUnwindsTheOtherThreads) {
  const Tensor alive = zeros({1}, {.dtype = i32, .device = device_});
  for (const std::int64_t threads : {1, 2, 5, 64}) {
    for (const std::int64_t thrower : {std::int64_t{0}, threads / 2, threads - 1}) {
      own::throw_in_thread(stream(), threads, thrower, alive.data_ptr<std::int32_t>());
      EXPECT_ERROR(stream().synchronize(), std::domain_error, "thread " + std::to_string(thrower));
      EXPECT_EQ(alive.item<std::int32_t>(), 0) << threads << " threads, thrower " << thrower;
    }
  }
  // The stacks serve the next launch.
  const Tensor sums = numbers(1);
  const Tensor in = copied(some_values(64));
  own::block_sums(stream(), 1, 64, in.data_ptr<std::int64_t>(), 64, sums.data_ptr<std::int64_t>());
  EXPECT_EQ(sums.item<std::int64_t>(), in.sum().item<std::int64_t>());
}

TEST_F(LaunchFaultTest, ABarrierThatSomeThreadsMissIsAnError) {
  own::uneven_barriers(stream(), 8, 8);
  EXPECT_NO_THROW(stream().synchronize());
  own::uneven_barriers(stream(), 8, 3);
  EXPECT_ERROR(stream().synchronize(), InvalidArgument,
               "launch: expected all threads of block (0, 0, 0) at barrier 2, but thread (3, 0, 0) "
               "returned before");
  own::uneven_barriers(stream(), 8, 0);
  EXPECT_NO_THROW(stream().synchronize());
}

TEST_F(LaunchFaultTest, SharedMemoryEndsWhereTheBlockSizeSays) {
  const Tensor out = numbers(1);
  own::take_shared(stream(), 4, 32, out.data_ptr<std::int64_t>());
  EXPECT_EQ(out.item<std::int64_t>(), 4);
  own::take_shared(stream(), 5, 32, out.data_ptr<std::int64_t>());
  EXPECT_ERROR(stream().synchronize(), InvalidArgument,
               "launch: expected Block::shared() to stay within the 32 bytes of the block's size, "
               "but got a request for 40 behind the first 0");
}

}  // namespace
}  // namespace gantry
