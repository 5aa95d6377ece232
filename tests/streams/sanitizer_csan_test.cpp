// The situations that the tests of torch's CUDA sanitizer (test/test_cuda_sanitizer.py) cover.
#include <gmock/gmock.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <gantry/streams/event.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/streams/sanitizer_fixture.hpp"

namespace gantry::testing {
namespace {

// Kernels on numbered streams that use numbered tensors, and numbered events between them.
class SanitizerCsan : public SanitizerTest {
 protected:
  static constexpr int kCount = 12;

  void SetUp() override {
    SanitizerTest::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < kCount; ++i) streams_.push_back(Stream::from_pool(Device::cuda(0)));
  }
  // The number of races that a kernel has.
  std::size_t launch(int stream, std::initializer_list<int> read,
                     std::initializer_list<int> written) {
    sanitizer::clear();
    std::vector<sanitizer::Use> uses;
    for (const int tensor : read) uses.push_back(sanitizer::reads(tensor_of(tensor)));
    for (const int tensor : written) uses.push_back(sanitizer::writes(tensor_of(tensor)));
    sanitizer::uses("kernel " + std::to_string(launches_++), stream_of(stream), uses);
    return sanitizer::report().races.size();
  }
  void record(int event, int stream) { event_of(event).record(stream_of(stream)); }
  void wait(int event, int stream) { event_of(event).wait(stream_of(stream)); }
  [[nodiscard]] const Stream& stream_of(int i) const {
    return streams_[static_cast<std::size_t>(i)];
  }
  Event& event_of(int i) { return events_[static_cast<std::size_t>(i)]; }
  // A program that goes on as if nothing had happened.
  void restart() {
    sanitizer::enable(sanitizer::Mode::off);
    sanitizer::enable(sanitizer::Mode::warn);
    for (Event& event : events_) event = Event();
  }

 private:
  sanitizer::Region tensor_of(int tensor) const {
    return {&memory_[static_cast<std::size_t>(tensor)], 1};
  }

  std::array<char, kCount> memory_{};
  std::vector<Stream> streams_;
  std::array<Event, kCount> events_;
  int launches_ = 0;
};

TEST_F(SanitizerCsan, AKernelWithoutTensorsIsFine) { EXPECT_EQ(launch(0, {}, {}), 0U); }

TEST_F(SanitizerCsan, TwoReadersNeedNoOrder) {
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  EXPECT_EQ(launch(2, {1}, {}), 0U);
}

TEST_F(SanitizerCsan, AWriterRacesWithAReader) {
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  EXPECT_EQ(launch(2, {}, {1}), 1U);
}

TEST_F(SanitizerCsan, AnEventOrdersThem) {
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  record(0, 1);
  wait(0, 2);
  EXPECT_EQ(launch(2, {}, {1}), 0U);
}

TEST_F(SanitizerCsan, EveryReaderIsComparedWithTheLastWriter) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  record(0, 1);
  wait(0, 2);
  EXPECT_EQ(launch(2, {1}, {}), 0U);
  EXPECT_EQ(launch(3, {1}, {}), 1U);
}

TEST_F(SanitizerCsan, BranchesMayReadButNotWrite) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  record(0, 1);
  wait(0, 2);
  wait(0, 3);
  EXPECT_EQ(launch(2, {1}, {}), 0U);
  EXPECT_EQ(launch(3, {1}, {}), 0U);
  EXPECT_EQ(launch(2, {}, {1}), 1U);
}

TEST_F(SanitizerCsan, AChainOfWaitsOrders) {
  EXPECT_EQ(launch(0, {1}, {}), 0U);
  for (int i = 0; i < 10; ++i) {
    record(i, i);
    wait(i, i + 1);
  }
  EXPECT_EQ(launch(10, {}, {1}), 0U);
}

TEST_F(SanitizerCsan, ARecordDoesNotCoverLaterKernels) {
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  record(0, 1);
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  wait(0, 2);
  EXPECT_EQ(launch(2, {}, {1}), 1U);
}

TEST_F(SanitizerCsan, ANewEventInThePlaceOfADestroyedOneOrdersNothing) {
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  record(0, 1);
  event_of(0) = Event();
  wait(0, 2);
  EXPECT_EQ(launch(2, {}, {1}), 1U);
}

TEST_F(SanitizerCsan, AWriterIsComparedWithAllReaders) {
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(launch(i, {1}, {}), 0U);
    record(i, i);
  }
  for (int i = 1; i < 10; ++i) wait(i, 0);
  EXPECT_EQ(launch(0, {}, {1}), 1U);

  restart();
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(launch(i, {1}, {}), 0U);
    record(i, i);
  }
  for (int i = 1; i <= 10; ++i) wait(i, 0);
  EXPECT_EQ(launch(0, {}, {1}), 0U);
}

TEST_F(SanitizerCsan, EveryTensorOfAKernelIsReported) {
  EXPECT_EQ(launch(0, {}, {0, 1, 2, 3, 4}), 0U);
  sanitizer::clear();
  EXPECT_GE(launch(1, {}, {0, 1, 2, 3, 4}), 1U);
  std::uint64_t count = 0;
  for (const sanitizer::Race& race : sanitizer::report().races) count += race.count;
  EXPECT_EQ(count, 5U);
}

TEST_F(SanitizerCsan, AWaitKeepsWhatTheStreamKnew) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  EXPECT_EQ(launch(2, {}, {2}), 0U);
  record(1, 1);
  record(2, 2);
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  EXPECT_EQ(launch(2, {}, {2}), 0U);
  wait(1, 2);
  wait(2, 1);
  record(3, 2);
  wait(3, 1);
  EXPECT_EQ(launch(1, {}, {1, 2}), 0U);
}

TEST_F(SanitizerCsan, ANewRecordReplacesTheOld) {
  EXPECT_EQ(launch(1, {1}, {}), 0U);
  EXPECT_EQ(launch(2, {2}, {}), 0U);
  record(1, 1);
  record(1, 2);
  wait(1, 3);
  EXPECT_EQ(launch(3, {}, {1}), 1U);
}

TEST_F(SanitizerCsan, SeveralStreamsMayWaitForOneEvent) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  record(1, 1);
  wait(1, 2);
  wait(1, 3);
  EXPECT_EQ(launch(2, {1}, {}), 0U);
  EXPECT_EQ(launch(3, {1}, {}), 0U);
}

TEST_F(SanitizerCsan, SynchronizingTheDeviceOrdersAllStreams) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  EXPECT_EQ(launch(2, {}, {2}), 0U);
  synchronize(Device::cuda(0));
  EXPECT_EQ(launch(1, {}, {2}), 0U);
  EXPECT_EQ(launch(2, {}, {1}), 0U);
  EXPECT_EQ(launch(1, {}, {1}), 1U);  // behind the synchronization
}

TEST_F(SanitizerCsan, SynchronizingAStreamOrdersItsWork) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  EXPECT_EQ(launch(2, {}, {2}), 0U);
  stream_of(1).synchronize();
  EXPECT_EQ(launch(3, {}, {1}), 0U);
  EXPECT_EQ(launch(3, {}, {2}), 1U);
}

TEST_F(SanitizerCsan, SynchronizingAnEventOrdersWhatItRecorded) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  record(1, 1);
  EXPECT_EQ(launch(1, {}, {2}), 0U);
  event_of(1).synchronize();
  EXPECT_EQ(launch(2, {}, {1}), 0U);
  EXPECT_EQ(launch(2, {}, {2}), 1U);
}

TEST_F(SanitizerCsan, AStreamThatIsUsedFirstAfterwardsIsOrdered) {
  EXPECT_EQ(launch(1, {}, {1}), 0U);
  synchronize(Device::cuda(0));
  EXPECT_EQ(launch(11, {}, {1}), 0U);
}

// Which tensors an operation reads and writes: a write of the first kind races with a later read
// elsewhere, and a read does not.
class SanitizerOperands : public SanitizerTest {
 protected:
  // True if the last operation on the current stream wrote, or at least used, the tensor.
  bool wrote(const Tensor& tensor) const { return races(sanitizer::reads(tensor)); }
  bool used(const Tensor& tensor) const { return races(sanitizer::writes(tensor)); }
  bool only_read(const Tensor& tensor) const { return !wrote(tensor) && used(tensor); }
  const TensorOptions options_{.dtype = DType::f32, .device = Device::cuda(0)};

 private:
  static bool races(const sanitizer::Use& use) {
    sanitizer::clear();
    sanitizer::uses("probe", Stream::from_pool(Device::cuda(0)), {use});
    return !sanitizer::report().races.empty();
  }
};

TEST_F(SanitizerOperands, Add) {
  const Tensor a = ones({5, 3}, options_);
  const Tensor b = ones({5, 3}, options_);
  synchronize(Device::cuda(0));
  const Tensor c = a.add(b);
  EXPECT_TRUE(only_read(a));
  EXPECT_TRUE(only_read(b));
  EXPECT_TRUE(wrote(c));
}

TEST_F(SanitizerOperands, Cat) {
  const std::vector<Tensor> parts{ones({2, 4, 5}, options_), zeros({2, 1, 5}, options_),
                                  ones({2, 7, 5}, options_)};
  synchronize(Device::cuda(0));
  const Tensor joined = cat(parts, 1);
  for (const Tensor& part : parts) EXPECT_TRUE(only_read(part));
  EXPECT_TRUE(wrote(joined));
}

TEST_F(SanitizerOperands, SplitTouchesNothing) {
  const Tensor a = ones({5, 2}, options_);
  synchronize(Device::cuda(0));
  const std::vector<Tensor> parts = a.split(2);
  EXPECT_FALSE(used(a));
}

TEST_F(SanitizerOperands, InPlace) {
  const Tensor a = ones({4, 2}, options_);
  synchronize(Device::cuda(0));
  a.add_(5);
  EXPECT_TRUE(wrote(a));
}

TEST_F(SanitizerOperands, Out) {
  const Tensor a = ones({8}, options_);
  Tensor b = empty({8}, options_);
  synchronize(Device::cuda(0));
  mul_out(b, a, 3);
  EXPECT_TRUE(only_read(a));
  EXPECT_TRUE(wrote(b));
}

TEST_F(SanitizerOperands, ATensorThatOccursTwice) {
  const Tensor a = ones({8}, options_);
  synchronize(Device::cuda(0));
  const Tensor sum = a.add(a);
  EXPECT_TRUE(only_read(a));
}

TEST_F(SanitizerOperands, MessageNamesBothSides) {
  const Tensor a = ones({4, 2}, options_);
  synchronize(Device::cuda(0));
  a.add_(5);
  const Stream other = Stream::from_pool(Device::cuda(0));
  sanitizer::uses("mul", other, {sanitizer::reads(a)});
  const sanitizer::Report report = sanitizer::report();
  ASSERT_EQ(report.races.size(), 1U);
  const std::string text = report.str();
  EXPECT_THAT(text, ::testing::HasSubstr("mul: expected an order after add on the same memory"));
  EXPECT_THAT(text, ::testing::HasSubstr("add writes f32 [4, 2] on stream 0 of cuda:0, at "));
  EXPECT_THAT(text, ::testing::HasSubstr("mul reads f32 [4, 2] on stream " +
                                         std::to_string(other.id()) + " of cuda:0, at "));
  EXPECT_THAT(text, ::testing::HasSubstr("sanitizer_csan_test.cpp"));
}

}  // namespace
}  // namespace gantry::testing
