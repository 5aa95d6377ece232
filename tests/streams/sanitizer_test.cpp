#include <gantry/streams/sanitizer.hpp>

#include <gmock/gmock.h>

#include <memory>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/streams/sanitizer_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry::testing {
namespace {

using sanitizer::Mode;

class SanitizerModes : public SanitizerTest {
 protected:
  const Device device_ = Device::cuda(0);
  const TensorOptions options_{.dtype = DType::f32, .device = device_};

  // A write that only the sanitizer sees: a real one would be a race for ThreadSanitizer, too.
  static void write(const Tensor& tensor, const Stream& stream) {
    sanitizer::uses("kernel", stream, {sanitizer::writes(tensor)});
  }
};

TEST_F(SanitizerModes, OffReportsNothing) {
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  sanitizer::enable(Mode::off);
  EXPECT_EQ(sanitizer::mode(), Mode::off);
  write(x, Stream::from_pool(device_));
  write(x, Stream::from_pool(device_));
  sanitizer::enable(Mode::warn);
  write(x, Stream::from_pool(device_));
  EXPECT_TRUE(sanitizer::report().races.empty());
  synchronize(device_);
}

TEST_F(SanitizerModes, ThrowStopsTheSecondOperation) {
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  const Stream first = Stream::from_pool(device_);
  const Stream second = Stream::from_pool(device_);
  sanitizer::enable(Mode::throw_);
  on(first, [&] { x.fill_(2); });
  on(second, [&] {
    EXPECT_ERROR(x.fill_(3), RaceError, "fill: expected an order after fill on the same memory");
    EXPECT_ERROR(x.mul_(4), RaceError, "make the second stream wait for the first");
  });
  EXPECT_EQ(sanitizer::report().races.size(), 2U);
  // With the order it goes through, and nothing of the refused calls is left.
  second.wait(first);
  on(second, [&] { x.add_(1); });
  EXPECT_EQ(sanitizer::report().races.size(), 2U);
  synchronize(device_);
  EXPECT_EQ(x.sum().item<float>(), 8 * 3.0F);
}

TEST_F(SanitizerModes, ThrowRefusesCopiesAndReplays) {
  const Tensor x = ones({8}, options_);
  const Tensor y = zeros({8}, options_);
  Graph graph;
  {
    GraphCapture capture(graph);
    y.copy_(x);
  }
  synchronize(device_);
  const Stream first = Stream::from_pool(device_);
  const Stream second = Stream::from_pool(device_);
  sanitizer::enable(Mode::throw_);
  on(first, [&] { x.fill_(2); });
  on(second, [&] {
    EXPECT_ERROR(y.copy_(x), RaceError, "copy: expected an order after fill");
    EXPECT_ERROR(graph.replay(), RaceError, "in a graph captured at");
  });
  synchronize(device_);
  EXPECT_EQ(y.sum().item<float>(), 0.0F);
  graph.replay();
  synchronize(device_);
  EXPECT_EQ(y.sum().item<float>(), 16.0F);
}

TEST_F(SanitizerModes, AFreeNeverThrows) {
  sanitizer::enable(Mode::throw_);
  const Stream other = Stream::from_pool(device_);
  {
    const Tensor x = ones({8}, options_);
    other.wait(Stream::default_stream(device_));
    // Only the sanitizer sees this kernel: a real one would read freed memory.
    sanitizer::uses("kernel", other, {sanitizer::reads(x)});
  }
  const sanitizer::Report report = sanitizer::report();
  ASSERT_EQ(report.races.size(), 1U);
  EXPECT_EQ(report.races[0].second.operation, "free");
  EXPECT_THAT(report.str(), ::testing::HasSubstr("record_stream()"));
}

TEST_F(SanitizerModes, MemoryOfTheNextOwnerHasNoPast) {
  for (int round = 0; round < 20; ++round) {
    const Stream stream = Stream::from_pool(device_);
    on(stream, [&] { ones({1 << 16}, options_).mul_(2); });
    Tensor shared = ones({1 << 16}, options_);
    stream.wait(Stream::default_stream(device_));
    on(stream, [&] { shared.mul_(2); });
    shared.record_stream(stream);
  }
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
}

// An allocator of the program that hands out the same memory again and again, by rules of its own.
class OneBlock final : public memory::Allocator {
 public:
  explicit OneBlock(Device device)
      : device_(device), data_(driver().allocate(device.index, 4096)) {}
  ~OneBlock() override { driver().deallocate(device_.index, data_); }
  OneBlock(const OneBlock&) = delete;
  OneBlock& operator=(const OneBlock&) = delete;
  memory::Block allocate(const Stream& /*stream*/, std::size_t bytes,
                         std::size_t /*alignment*/) override {
    return {.data = data_, .bytes = bytes, .device = device_, .allocator = this, .handle = data_};
  }
  void deallocate(memory::Block& block) noexcept override { block = {}; }

 private:
  Device device_;
  void* data_;
};

TEST_F(SanitizerModes, MemoryOfAnAllocatorOfTheProgramHasNoPast) {
  const auto before = memory::set_allocator(device_, std::make_shared<OneBlock>(device_));
  for (int i = 0; i < 3; ++i) {
    const Tensor x = empty({8}, options_);
    write(x, Stream::from_pool(device_));
  }
  memory::set_allocator(device_, before);
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
}

TEST_F(SanitizerModes, OperationsOfACommunicatorFollowEachOther) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Communicator> group = Communicator::local({device_, Device::cuda(1)});
  const Tensor mine = ones({64}, options_);
  const Tensor other = ones({64}, {.dtype = DType::f32, .device = Device::cuda(1)});
  synchronize(device_);
  synchronize(Device::cuda(1));
  for (int i = 0; i < 3; ++i) {
    on(Stream::from_pool(device_), [&] { static_cast<void>(group[0].all_reduce(mine)); });
    static_cast<void>(group[1].all_reduce(other));
  }
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
  synchronize(device_);
  synchronize(Device::cuda(1));
}

TEST_F(SanitizerModes, ReportsCountAndAreCleared) {
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  const Stream first = Stream::from_pool(device_);
  const Stream second = Stream::from_pool(device_);
  sanitizer::clear();
  for (int i = 0; i < 3; ++i) {
    for (const Stream& stream : {first, second}) write(x, stream);
    synchronize(device_);
  }
  sanitizer::Report report = sanitizer::report();
  ASSERT_EQ(report.races.size(), 1U);
  EXPECT_EQ(report.races[0].count, 3U);
  EXPECT_EQ(report.races[0].first.stream, first.id());
  EXPECT_EQ(report.races[0].second.stream, second.id());
  EXPECT_EQ(report.races[0].second.sizes, Dims({8}));
  EXPECT_EQ(report.races[0].address, reinterpret_cast<std::uintptr_t>(x.data()));
  EXPECT_EQ(report.operations, 6U);
  sanitizer::clear();
  report = sanitizer::report();
  EXPECT_TRUE(report.races.empty());
  EXPECT_EQ(report.operations, 0U);
  EXPECT_EQ(report.str(), "no race in 0 operations\n");
}

TEST_F(SanitizerModes, OrdersOfTheProgramCount) {
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  const Stream first = Stream::from_pool(device_);
  const Stream second = Stream::from_pool(device_);
  write(x, first);
  sanitizer::orders(first, second);
  write(x, second);
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
  write(x, first);
  EXPECT_EQ(sanitizer::report().races.size(), 1U);
}

TEST_F(SanitizerModes, ASuccessfulQueryOrders) {
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  const Stream first = Stream::from_pool(device_);
  on(first, [&] { x.fill_(2); });
  const Event event = first.record();
  while (!event.query()) std::this_thread::yield();
  on(Stream::from_pool(device_), [&] { x.fill_(3); });
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
}

TEST_F(SanitizerModes, ReplaysOfOneGraphFollowEachOther) {
  const Tensor x = ones({8}, options_);
  Graph graph;
  {
    GraphCapture capture(graph);
    x.mul_(2);
  }
  synchronize(device_);
  for (int i = 0; i < 4; ++i) on(Stream::from_pool(device_), [&] { graph.replay(); });
  synchronize(device_);
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
  EXPECT_EQ(x.sum().item<float>(), 8 * 16.0F);
}

TEST_F(SanitizerModes, AnUpdatedGraphUsesTheOtherMemory) {
  const Tensor x = ones({8}, options_);
  const Tensor y = ones({8}, options_);
  Graph graph;
  Graph source;
  {
    GraphCapture capture(graph);
    x.mul_(2);
  }
  {
    GraphCapture capture(source);
    y.mul_(2);
  }
  graph.update(source);
  synchronize(device_);
  on(Stream::from_pool(device_), [&] { graph.replay(); });
  write(x, Stream::from_pool(device_));
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
  write(y, Stream::from_pool(device_));
  EXPECT_EQ(sanitizer::report().races.size(), 1U);
  synchronize(device_);
}

TEST_F(SanitizerModes, ReplaysOfEarlierGraphsAreNotCheckedAndCounted) {
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  sanitizer::enable(Mode::off);
  Graph graph;
  {
    const GraphCapture capture(graph);
    x.mul_(2);
  }
  sanitizer::enable(Mode::warn);
  const std::uint64_t before = sanitizer::report().operations;
  logging::set_level(logging::Level::warn);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) graph.replay();
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  logging::set_level(logging::Level::error);
  const std::string warning = "the graph was captured before the stream sanitizer was enabled";
  EXPECT_THAT(warnings, ::testing::HasSubstr(warning));
  EXPECT_EQ(warnings.find(warning), warnings.rfind(warning)) << "once for each graph";
  const sanitizer::Report report = sanitizer::report();
  EXPECT_EQ(report.unknown_replays, 2U);
  EXPECT_EQ(report.operations, before);
  EXPECT_THAT(report.str(), ::testing::HasSubstr("not checked: 2 replays of graphs that were "
                                                 "captured before enable()"));
  Graph known;
  {
    const GraphCapture capture(known);
    x.mul_(3);
  }
  graph.update(known);
  graph.replay();
  EXPECT_EQ(sanitizer::report().unknown_replays, 2U) << "it does now what a known graph does";
  sanitizer::clear();
  EXPECT_EQ(sanitizer::report().unknown_replays, 0U);
  synchronize(device_);
}

TEST_F(SanitizerModes, AFailedOperationLeavesNoAccess) {
  GANTRY_REQUIRE_SIM();
  const Tensor x = ones({8}, options_);
  synchronize(device_);
  sanitizer::enable(Mode::throw_);
  const Stream first = Stream::from_pool(device_);
  // More bytes than there are: the driver refuses it after the sanitizer entered the operand.
  for (const Stream& stream : {first, Stream::from_pool(device_)}) {
    EXPECT_THROW(driver().fill(x.data(), 0, std::size_t{1} << 40, stream.native()), CudaError);
  }
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
}

TEST_F(SanitizerModes, ThreadsMayWorkAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Stream stream = Stream::from_pool(device_);
      const StreamGuard guard(stream);
      const Tensor x = ones({64}, options_);
      const Stream other = Stream::from_pool(device_);
      for (int i = 0; i < 200; ++i) {
        x.add_(1);
        other.wait(stream);
        {
          const StreamGuard inner(other);
          static_cast<void>(x.sum());
        }
        stream.wait(other);
        const Event event = stream.record();
        if (i % 50 == 0) event.synchronize();
        if (i % 60 == 0) static_cast<void>(sanitizer::report());
      }
      stream.synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(sanitizer::report().races.empty()) << sanitizer::report().str();
  EXPECT_GT(sanitizer::report().operations, 1600U);
}

}  // namespace
}  // namespace gantry::testing
