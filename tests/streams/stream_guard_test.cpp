#include <gantry/streams/stream_guard.hpp>

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

class StreamGuardTest : public testing::DeviceTest {};

TEST_F(StreamGuardTest, SetsAndRestoresTheStream) {
  const Stream before = Stream::current();
  const Stream stream = Stream::from_pool();
  {
    const StreamGuard guard(stream);
    EXPECT_EQ(Stream::current(), stream);
    EXPECT_EQ(guard.current_stream(), stream);
    EXPECT_EQ(guard.original_stream(), before);
  }
  EXPECT_EQ(Stream::current(), before);
}

TEST_F(StreamGuardTest, SetsTheStreamsDeviceAndRestoresBoth) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream other = Stream::from_pool(Device::cuda(1));
  const Stream original_of_other = Stream::current(Device::cuda(1));
  {
    const StreamGuard guard(other);
    EXPECT_EQ(current_device(), Device::cuda(1));
    EXPECT_EQ(Stream::current(), other);
    EXPECT_EQ(guard.original_stream(), original_of_other);
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
  EXPECT_EQ(Stream::current(Device::cuda(1)), original_of_other);
}

TEST_F(StreamGuardTest, Nests) {
  const Stream outer = Stream::from_pool();
  const Stream inner = Stream::from_pool();
  const StreamGuard first(outer);
  {
    const StreamGuard second(inner);
    EXPECT_EQ(Stream::current(), inner);
  }
  EXPECT_EQ(Stream::current(), outer);
}

TEST_F(StreamGuardTest, RestoresWhenAnExceptionLeavesTheScope) {
  const Stream before = Stream::current();
  try {
    const StreamGuard guard(Stream::from_pool());
    throw std::runtime_error("leave");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(Stream::current(), before);
}

TEST_F(StreamGuardTest, MultiGuardSetsOneStreamPerDeviceAndKeepsTheDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::array streams = {Stream::from_pool(Device::cuda(0)),
                              Stream::from_pool(Device::cuda(1))};
  const Stream inherited = Stream::from_pool(Device::cuda(1));
  set_stream(inherited);
  {
    const MultiStreamGuard guard(streams);
    EXPECT_EQ(current_device(), Device::cuda(0));
    EXPECT_EQ(Stream::current(Device::cuda(0)), streams[0]);
    EXPECT_EQ(Stream::current(Device::cuda(1)), streams[1]);
  }
  EXPECT_EQ(Stream::current(Device::cuda(0)), Stream::default_stream(Device::cuda(0)));
  EXPECT_EQ(Stream::current(Device::cuda(1)), inherited);
  set_stream(Stream::default_stream(Device::cuda(1)));
}

TEST_F(StreamGuardTest, MultiGuardTakesNoStreams) {
  const Stream before = Stream::current();
  { const MultiStreamGuard guard({}); }
  EXPECT_EQ(Stream::current(), before);
}

}  // namespace
}  // namespace gantry
