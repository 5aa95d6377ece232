// Waits of streams for words of page-locked memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::DeviceBytes;
using testing::Gate;
using testing::PinnedBytes;
using testing::TestEvent;
using testing::TestStream;

constexpr std::size_t kBytes = 4096;

/// A word that streams wait for.
class TestWord {
 public:
  explicit TestWord(std::uint32_t value = 0) { write(value); }
  [[nodiscard]] std::uint32_t* address() const {
    return reinterpret_cast<std::uint32_t*>(memory_.data());
  }
  void write(std::uint32_t value) const {
    std::atomic_ref(*address()).store(value, std::memory_order_release);
  }

 private:
  PinnedBytes memory_{sizeof(std::uint32_t)};
};

class DriverWordTest : public testing::DriverTest {};

TEST_F(DriverWordTest, HoldsEveryStreamUntilItIsWritten) {
  const TestWord word;
  const TestStream first(0);
  const TestStream second(0);
  const TestStream far(device_count() - 1);
  const TestStream unrelated(0);
  const PinnedBytes source(kBytes);
  const DeviceBytes targets[] = {DeviceBytes(0, kBytes), DeviceBytes(0, kBytes),
                                 DeviceBytes(device_count() - 1, kBytes)};
  const NativeStream streams[] = {first, second, far};
  for (int i = 0; i < 3; ++i) {
    driver().wait_for_word(streams[i], word.address(), 1);
    driver().copy(targets[i].data(), source.data(), kBytes, streams[i]);
  }
  driver().synchronize_stream(unrelated);
  for (const NativeStream stream : streams) {
    EXPECT_FALSE(driver().query_stream(stream));
  }
  std::fill_n(source.data(), kBytes, std::uint8_t{7});
  word.write(1);
  for (int i = 0; i < 3; ++i) {
    const PinnedBytes result(kBytes);
    driver().copy(result.data(), targets[i].data(), kBytes, streams[i]);
    driver().synchronize_stream(streams[i]);
    EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(kBytes, 7)) << "did not wait";
  }
}

TEST_F(DriverWordTest, LetsPassWhatIsReached) {
  const TestWord word(5);
  const TestStream stream(0);
  for (const std::uint32_t value : {5u, 4u, 0u}) {
    driver().wait_for_word(stream, word.address(), value);
  }
  driver().synchronize_stream(stream);
  EXPECT_TRUE(driver().query_stream(stream));
}

TEST_F(DriverWordTest, CountsInACircle) {
  constexpr std::uint32_t kLast = UINT32_MAX;
  const TestWord word(kLast - 1);
  const TestStream stream(0);
  driver().wait_for_word(stream, word.address(), kLast - 1);
  driver().wait_for_word(stream, word.address(), kLast - 0x7fff'ffff);
  driver().synchronize_stream(stream);
  driver().wait_for_word(stream, word.address(), 1);
  EXPECT_FALSE(driver().query_stream(stream)) << "1 comes after the last number";
  word.write(2);
  driver().synchronize_stream(stream);
  driver().wait_for_word(stream, word.address(), kLast);
  driver().synchronize_stream(stream);
}

TEST_F(DriverWordTest, LaterValuesEndEarlierWaits) {
  const TestWord word;
  const TestStream late(0);
  const TestStream next(0);
  {
    const Gate gate(late);
    driver().wait_for_word(late, word.address(), 1);
    driver().wait_for_word(next, word.address(), 2);
    word.write(1);
    EXPECT_FALSE(driver().query_stream(next));
    word.write(2);
    driver().synchronize_stream(next);
  }
  EXPECT_TRUE(driver().query_stream(late));
}

TEST_F(DriverWordTest, WholeDeviceWaitsForIt) {
  const TestWord word;
  const TestStream stream(0);
  const DeviceBytes device(0, kBytes);
  const PinnedBytes result(kBytes);
  driver().wait_for_word(stream, word.address(), 1);
  driver().fill(device.data(), 3, kBytes, stream);
  driver().copy(result.data(), device.data(), kBytes, stream);
  word.write(1);
  driver().synchronize_device(0);
  EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(kBytes, 3));
}

TEST_F(DriverWordTest, EventsBehindItAreReachedLater) {
  const TestWord word;
  const TestStream stream(0);
  const TestStream waiting(0);
  const TestEvent event(0);
  driver().wait_for_word(stream, word.address(), 1);
  driver().record_event(event, stream);
  driver().wait_event(waiting, event);
  EXPECT_FALSE(driver().event_reached(event));
  EXPECT_FALSE(driver().query_stream(waiting));
  word.write(1);
  driver().synchronize_stream(waiting);
  EXPECT_TRUE(driver().event_reached(event));
}

}  // namespace
}  // namespace gantry
