#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::DeviceBytes;
using testing::Gate;
using testing::PinnedBytes;
using testing::TestStream;

class DriverStreamTest : public testing::DriverTest {};

/// Appends its number to a list, on the stream's thread.
struct Note {
  std::vector<int>* list;
  int number;
  static void append(void* self) {
    auto* note = static_cast<Note*>(self);
    note->list->push_back(note->number);
  }
};

TEST_F(DriverStreamTest, HostFunctionsRunInOrder) {
  const TestStream stream(0);
  std::vector<int> order;
  std::vector<Note> notes;
  for (int i = 0; i < 100; ++i) notes.push_back({&order, i});
  for (Note& note : notes) driver().launch_host_function(stream, Note::append, &note);
  driver().synchronize_stream(stream);
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_F(DriverStreamTest, WorkRunsInOrder) {
  const TestStream stream(0);
  const DeviceBytes device(0, 4096);
  const PinnedBytes result(200);
  for (int i = 0; i < 200; ++i) {
    driver().fill(device.data(), static_cast<std::uint8_t>(i), 4096, stream);
    driver().copy(result.data() + i, static_cast<std::uint8_t*>(device.data()) + 4095, 1, stream);
  }
  driver().synchronize_stream(stream);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(result.data()[i], i);
}

TEST_F(DriverStreamTest, QueryCountsTheRunningTask) {
  const TestStream stream(0);
  EXPECT_TRUE(driver().query_stream(stream));
  {
    const Gate gate(stream);
    EXPECT_FALSE(driver().query_stream(stream));
  }
  EXPECT_TRUE(driver().query_stream(stream));
}

TEST_F(DriverStreamTest, StreamsDoNotWaitForEachOther) {
  const TestStream held(0);
  const TestStream free(0);
  const DeviceBytes device(0, 16);
  const PinnedBytes result(16);
  const Gate gate(held);
  driver().fill(device.data(), 5, 16, free);
  driver().copy(result.data(), device.data(), 16, free);
  driver().synchronize_stream(free);
  EXPECT_EQ(result.data()[15], 5);
  EXPECT_FALSE(driver().query_stream(held));
}

TEST_F(DriverStreamTest, StreamsDoNotWaitForTheDefaultStream) {
  const TestStream held(0);
  const NativeStream legacy{.device = 0, .handle = nullptr};
  const DeviceBytes device(0, 16);
  const PinnedBytes result(16);
  const Gate gate(held);
  driver().fill(device.data(), 6, 16, legacy);
  driver().copy(result.data(), device.data(), 16, legacy);
  driver().synchronize_stream(legacy);
  EXPECT_EQ(result.data()[0], 6);
}

TEST_F(DriverStreamTest, SynchronizeDeviceWaitsForEveryStream) {
  const TestStream first(0);
  const TestStream second(0);
  std::atomic<int> done{0};
  const auto count = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  for (int i = 0; i < 10; ++i) {
    driver().launch_host_function(first, count, &done);
    driver().launch_host_function(second, count, &done);
  }
  driver().synchronize_device(0);
  EXPECT_EQ(done.load(), 20);
}

TEST_F(DriverStreamTest, WorkOfADestroyedStreamStillRuns) {
  std::atomic<int> done{0};
  const NativeStream stream = driver().create_stream(0, 0);
  driver().launch_host_function(
      stream, [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); }, &done);
  driver().destroy_stream(stream);
  driver().synchronize_device(0);
  EXPECT_EQ(done.load(), 1);
}

TEST_F(DriverStreamTest, TakesEveryPriorityOfItsRange) {
  const Driver::PriorityRange range = driver().priority_range(0);
  EXPECT_LE(range.greatest, range.least);
  for (int priority = range.greatest; priority <= range.least; ++priority) {
    const NativeStream stream = driver().create_stream(0, priority);
    EXPECT_EQ(stream.device, 0);
    EXPECT_NE(stream.handle, nullptr);
    EXPECT_TRUE(driver().query_stream(stream));
    driver().destroy_stream(stream);
  }
}

TEST_F(DriverStreamTest, NoTwoStreamsEverHaveOneIdentity) {
  EXPECT_EQ(driver().stream_identity({.device = 0, .handle = nullptr}), 0u);
  std::set<std::uint64_t> identities{0};
  for (int i = 0; i < 20; ++i) {
    const TestStream kept(0);
    const TestStream other(device_count() - 1);
    const std::uint64_t identity = driver().stream_identity(kept);
    EXPECT_TRUE(identities.insert(identity).second) << "stream " << i;
    EXPECT_TRUE(identities.insert(driver().stream_identity(other)).second) << "stream " << i;
    EXPECT_EQ(driver().stream_identity(kept), identity);
  }
}

TEST_F(DriverStreamTest, StreamsOfOtherDevicesKeepTheCurrentDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const TestStream stream(1);
  EXPECT_EQ(NativeStream(stream).device, 1);
  driver().synchronize_stream(stream);
  EXPECT_TRUE(driver().query_stream(stream));
  EXPECT_EQ(current_device(), Device::cuda(0));
}

}  // namespace
}  // namespace gantry
