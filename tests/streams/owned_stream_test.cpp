#include <gantry/streams/owned_stream.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/green_context.hpp>
#include <gantry/streams/optional_stream_guard.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using gantry::testing::FaultDriver;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class OwnedStreamTest : public gantry::testing::DeviceTest {};

TEST_F(OwnedStreamTest, IsAStreamOfItsOwn) {
  const OwnedStream first;
  const OwnedStream second;
  EXPECT_NE(first.stream(), second.stream());
  EXPECT_NE(first.stream(), Stream::default_stream());
  for (int i = 0; i < 64; ++i) EXPECT_NE(Stream::from_pool(), first.stream());
}

TEST_F(OwnedStreamTest, IsMadeAndDestroyedOnce) {
  FaultDriver calls;
  {
    OwnedStream stream;
    OwnedStream moved = std::move(stream);
    EXPECT_EQ(calls.calls("create_stream"), 1u);
    EXPECT_EQ(calls.calls("destroy_stream"), 0u);
  }
  EXPECT_EQ(calls.calls("destroy_stream"), 1u);
}

TEST_F(OwnedStreamTest, AFailureLeavesNoStream) {
  FaultDriver faults;
  faults.fail_on("create_stream", 1);
  EXPECT_THROW(OwnedStream(), CudaError);
  faults.fail_on("stream_identity", 1);
  EXPECT_THROW(OwnedStream(), CudaError);
  EXPECT_EQ(faults.calls("destroy_stream"), 1u);
}

TEST_F(OwnedStreamTest, WorkCompletesAfterIt) {
  std::vector<std::uint8_t> seen(1000);
  memory::Buffer buffer = memory::allocate(Stream::current(), seen.size());
  Event done;
  {
    const OwnedStream own;
    own.stream().wait(Stream::current());
    driver().fill(buffer.data(), 7, buffer.bytes(), own.stream().native());
    done.record(own.stream());
  }
  done.wait();
  buffer.copy_to(seen);
  EXPECT_EQ(seen, std::vector<std::uint8_t>(1000, 7));
}

TEST_F(OwnedStreamTest, TakesThePrioritiesOfTheDevice) {
  const StreamPriorityRange range = stream_priority_range();
  for (int priority = range.greatest; priority <= range.least; ++priority) {
    EXPECT_EQ(OwnedStream(Device::cuda(), priority).priority(), priority);
  }
  EXPECT_THAT([&] { OwnedStream(Device::cuda(), range.least + 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("OwnedStream: expected a priority in [")));
  EXPECT_THROW(OwnedStream(Device::cuda(), range.greatest - 1), InvalidArgument);
  EXPECT_THROW(OwnedStream(Device::cpu()), InvalidArgument);
  EXPECT_THROW((void)stream_priority_range(Device::cuda(device_count())), InvalidArgument);
}

TEST_F(OwnedStreamTest, AnOptionalGuardRestores) {
  const OwnedStream own;
  const Stream before = Stream::current();
  {
    const OptionalStreamGuard none(std::nullopt);
    EXPECT_EQ(Stream::current(), before);
    OptionalStreamGuard guard(own.stream());
    EXPECT_EQ(Stream::current(), own.stream());
    EXPECT_EQ(guard.original_stream(), before);
    const Stream other = Stream::from_pool();
    guard.set_stream(other);
    EXPECT_EQ(Stream::current(), other);
    EXPECT_EQ(guard.original_stream(), before) << "not the stream that the guard itself had set";
  }
  EXPECT_EQ(Stream::current(), before);
}

TEST_F(OwnedStreamTest, GreenContextsCheckTheirArguments) {
  EXPECT_THAT([] { GreenContext(0); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("GreenContext: expected a number of multiprocessors in [1, ")));
  EXPECT_THROW(GreenContext(1 << 20), InvalidArgument);
  EXPECT_THROW(GreenContext(1, Device::cpu()), InvalidArgument);
  if (platform() == Platform::cuda) return;
  EXPECT_THAT([] { GreenContext(1); },
              ThrowsMessage<NotSupported>(HasSubstr("but got a simulated device")));
}

}  // namespace
}  // namespace gantry
