// Blocks that change the stream that they belong to: Allocator::set_stream.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <thread>

#include <gantry/extend/forwarding_driver.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/backends.hpp"
#include "tests/memory/captures/capture_fixture.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::ForeignStream;
using gantry::testing::StreamHold;

// A driver on which no call may name a stream that is gone.
class WithoutStream final : public ForwardingDriver {
 public:
  explicit WithoutStream(void* gone) : ForwardingDriver(*exchange_driver(this)), gone_(gone) {}
  ~WithoutStream() override { exchange_driver(&wrapped()); }

  void record_event(NativeEvent event, NativeStream stream) override {
    check(stream);
    wrapped().record_event(event, stream);
  }
  bool is_capturing(NativeStream stream) override {
    check(stream);
    return wrapped().is_capturing(stream);
  }
  void deallocate_async(void* data, NativeStream stream) override {
    check(stream);
    wrapped().deallocate_async(data, stream);
  }

 private:
  void check(NativeStream stream) const { EXPECT_NE(stream.handle, gone_); }

  void* const gone_;
};

class BlockStreamTest : public gantry::testing::DeviceTest,
                        public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr std::size_t kBytes = 3'000'000;  // a free block of this size is reused at once

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (name() == "async" && !driver().supports_memory_pools(0)) GTEST_SKIP() << "no memory pools";
    allocator_ = make_allocator(name(), {});
    static_cast<void>(Stream::from_pool());  // made before the driver gives a handle out again
  }
  [[nodiscard]] std::string name() const { return GetParam(); }
  [[nodiscard]] Buffer make(const Stream& stream) {
    return Buffer(allocator_->allocate(stream, kBytes));
  }
  void set_stream(const Buffer& buffer, const Stream& stream) {
    allocator_->set_stream(buffer.block(), stream);
  }

  std::unique_ptr<DeviceAllocator> allocator_;
};

TEST_P(BlockStreamTest, TheFormerStreamMayEndBeforeTheFree) {
  const Stream owner = Stream::from_pool();
  ForeignStream former;
  Buffer buffer = make(former.stream());
  const NativeStream gone = former.stream().native();
  set_stream(buffer, owner);
  former.destroy();
  {
    const WithoutStream driver(gone.handle);
    buffer.reset();
    EXPECT_NE(make(owner).data(), nullptr);
    allocator_->empty_cache(Device::cuda(0));
  }
  EXPECT_EQ(allocator_->stats(0).reserved_bytes.all.current, 0);
}

TEST_P(BlockStreamTest, AFreeIsBehindTheWorkOfTheNewStream) {
  const Stream former = Stream::from_pool();
  const Stream owner = Stream::from_pool();
  Buffer buffer = make(former);
  void* const data = buffer.data();
  owner.wait(former);
  set_stream(buffer, owner);
  StreamHold hold(owner);
  buffer.reset();
  EXPECT_NE(make(former).data(), data) << "reused while a stream works with it";
  if (name() != "async") {
    EXPECT_EQ(make(owner).data(), data) << "the stream runs in order";
  }
  hold.release();
  owner.synchronize();
}

TEST_P(BlockStreamTest, RecordedStreamsStayRecorded) {
  const Stream former = Stream::from_pool();
  const Stream user = Stream::from_pool();
  const Stream owner = Stream::from_pool();
  Buffer buffer = make(former);
  void* const data = buffer.data();
  allocator_->record_stream(buffer.block(), user);
  allocator_->record_stream(buffer.block(), owner);
  set_stream(buffer, owner);
  set_stream(buffer, owner);
  StreamHold hold(user);
  buffer.reset();
  for (const Stream& stream : {former, user, owner}) {
    if (name() == "async" && stream == user) continue;  // the driver's pool reuses in its order
    EXPECT_NE(make(stream).data(), data) << "reused while a stream works with it";
  }
  hold.release();
  user.synchronize();
}

TEST_P(BlockStreamTest, ACapturedStreamKeepsItsBlock) {
  const Stream former = Stream::from_pool();
  const Stream owner = Stream::from_pool();
  Buffer buffer = make(former);
  void* const data = buffer.data();
  gantry::testing::CapturedGraph graph(former, gantry::testing::Begun::by_gantry);
  driver().fill(data, 1, kBytes, former.native());
  set_stream(buffer, owner);
  buffer.reset();
  EXPECT_NE(make(owner).data(), data) << "reused while a graph writes to it";
  graph.end();
  for (const Stream& stream : {owner, former}) {
    EXPECT_NE(make(stream).data(), data) << "reused while a graph writes to it";
  }
  graph.destroy_and_wait();
  allocator_->empty_cache(Device::cuda(0));
  EXPECT_EQ(allocator_->stats(0).reserved_bytes.all.current, 0);
}

TEST_P(BlockStreamTest, OneThreadFreesWhatAnotherAllocatedOnItsDefaultStream) {
  Buffer buffer;
  std::thread([&] { buffer = make(gantry::testing::per_thread_stream()); }).join();
  const Stream owner = Stream::from_pool();
  set_stream(buffer, owner);
  buffer.reset();
  owner.synchronize();
  allocator_->empty_cache(Device::cuda(0));
  EXPECT_EQ(allocator_->stats(0).reserved_bytes.all.current, 0);
}

TEST_P(BlockStreamTest, FreedAndEmptyBlocksAreLeftAlone) {
  const Stream owner = Stream::from_pool();
  const Buffer none(allocator_->allocate(owner, 0));
  set_stream(none, owner);
  EXPECT_EQ(none.data(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Memory, BlockStreamTest, ::testing::Values("vmm", "native", "async"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gantry::memory
