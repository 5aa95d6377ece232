#include <gantry/memory/buffer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::StreamHold;
using ::testing::ThrowsMessage;

class BufferTest : public gantry::testing::DeviceTest {};

std::vector<int> numbers(std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

static_assert(std::is_same_v<decltype(std::declval<Buffer&>().as<int>()), std::span<int>>);
static_assert(
    std::is_same_v<decltype(std::declval<Buffer&>().as<const int>()), std::span<const int>>);
static_assert(
    std::is_same_v<decltype(std::declval<const Buffer&>().as<int>()), std::span<const int>>);
static_assert(std::is_nothrow_move_constructible_v<Buffer>);
static_assert(std::is_nothrow_move_assignable_v<Buffer>);

TEST_F(BufferTest, ViewsHaveTheElementsOfTheMemory) {
  Buffer buffer(allocate_cpu(40));
  ASSERT_TRUE(buffer);
  const std::span<int> view = buffer.as<int>();
  EXPECT_EQ(view.data(), buffer.data());
  EXPECT_EQ(view.size(), 10u);
  view[9] = 5;
  EXPECT_EQ(std::as_const(buffer).as<int>()[9], 5);
  EXPECT_EQ(buffer.as<double>().size(), 5u);
  Buffer empty;
  EXPECT_FALSE(empty);
  EXPECT_TRUE(empty.as<double>().empty());
}

TEST_F(BufferTest, ViewsOfPartsOfElementsAreRefused) {
  Buffer buffer(allocate_cpu(10));
  EXPECT_THAT([&] { static_cast<void>(buffer.as<int>()); },
              ThrowsMessage<InvalidArgument>(
                  "Buffer::as: expected a size that is a multiple of 4 bytes, but got 10"));
  struct alignas(1 << 16) Wide {
    char bytes[1 << 16];
  };
  Buffer inside(Block{.data = static_cast<char*>(buffer.data()) + 1, .bytes = 1 << 16});
  EXPECT_THROW(static_cast<void>(inside.as<Wide>()), InvalidArgument);
}

TEST_F(BufferTest, CopiesToAndFromTheHost) {
  const Stream stream = Stream::from_pool();
  const std::vector<int> values = numbers(1000);
  for (Buffer& buffer :
       std::array{allocate(stream, 4000), pinned(4000), Buffer(allocate_cpu(4000))}) {
    buffer.copy_from(values, stream);
    std::vector<int> read(1000);
    buffer.copy_to(read, stream);
    stream.synchronize();
    EXPECT_EQ(read, values);
    // A part; spans; the current stream.
    buffer.copy_from(std::span<const int>(values).subspan(500, 2));
    std::array<int, 3> first{};
    const Buffer& view = buffer;
    view.copy_to(std::span<int>(first));
    synchronize(Device::cuda(0));
    EXPECT_EQ(first, (std::array{501, 502, 3}));
    buffer.copy_from(std::vector<int>());
  }
}

TEST_F(BufferTest, CopiesWaitForTheirStream) {
  const Stream stream = Stream::from_pool();
  Buffer device = allocate(stream, 400);
  Buffer host = pinned(400);
  device.copy_from(numbers(100), stream);
  stream.synchronize();
  host.as<int>()[0] = 0;
  StreamHold hold(stream);
  device.copy_to(host.as<int>(), stream);  // page-locked: the call does not block
  EXPECT_EQ(host.as<int>()[0], 0);
  hold.release();
  stream.synchronize();
  EXPECT_EQ(host.as<int>()[0], 1);
}

TEST_F(BufferTest, MayBeFreedWhileAnotherStreamCopies) {
  const Stream own = Stream::from_pool();
  const Stream other = Stream::from_pool();
  Buffer host = pinned(4 << 20);
  Buffer device = allocate(own, 4 << 20);
  void* const data = device.data();
  StreamHold hold(other);
  device.copy_to(host.as<char>(), other);
  device.reset();
  EXPECT_NE(allocate(own, 4 << 20).data(), data) << "reused while a stream copies from it";
  hold.release();
  other.synchronize();
}

TEST_F(BufferTest, UsesTheCurrentStreamOfItsDevice) {
  const Stream stream = Stream::from_pool();
  Buffer device = allocate(stream, 400);
  device.copy_from(numbers(100), stream);
  stream.synchronize();
  Buffer host = pinned(400);
  host.as<int>()[99] = 0;
  StreamHold hold(stream);
  const StreamGuard guard(stream);
  device.copy_to(host.as<int>());
  EXPECT_EQ(host.as<int>()[99], 0);
  hold.release();
  stream.synchronize();
  EXPECT_EQ(host.as<int>()[99], 100);
}

// A replay would use the address again, whatever is there by then.
TEST_F(BufferTest, ACaptureTakesNoPageableMemory) {
  Buffer buffer = allocate(Stream::current(), 400);
  std::vector<float> host(100, 7.0F);
  const Buffer page_locked = pinned(400);
  Graph graph;
  GraphCapture capture(graph);
  EXPECT_THAT([&] { buffer.copy_to(host); },
              ThrowsMessage<CaptureError>(::testing::HasSubstr(
                  "Buffer::copy_to: expected page-locked host memory in the capture")));
  EXPECT_THAT([&] { buffer.copy_from(host); },
              ThrowsMessage<CaptureError>(::testing::HasSubstr("Buffer::copy_from: ")));
  buffer.copy_from(std::span(page_locked.as<float>()));
  capture.end();
  graph.replay();
  Stream::current().synchronize();
}

TEST_F(BufferTest, RefusesBadCopies) {
  const Stream stream = Stream::default_stream(Device::cuda(0));
  Buffer buffer = allocate(stream, 8);
  std::vector<int> three(3);
  EXPECT_THAT([&] { buffer.copy_from(three, stream); },
              ThrowsMessage<InvalidArgument>("Buffer::copy_from: expected at most 8 bytes of the "
                                             "host, the size of the buffer, but got 12"));
  EXPECT_THROW(buffer.copy_to(three, stream), InvalidArgument);
  EXPECT_THROW(Buffer().copy_to(three), InvalidArgument);
  if (device_count() < 2) return;
  EXPECT_THAT(
      [&] { buffer.copy_to(std::span(three).first(1), Stream::default_stream(Device::cuda(1))); },
      ThrowsMessage<InvalidArgument>(
          "Buffer::copy_to: expected a stream of cuda:0, but got one of cuda:1"));
}

}  // namespace
}  // namespace gantry::memory
