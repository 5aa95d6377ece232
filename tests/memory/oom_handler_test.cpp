// Functions of the program that free memory for an allocation that finds none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/oom_handler.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry::memory {
namespace {

using ::testing::ElementsAre;

class OomHandlerTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(1);
    GANTRY_REQUIRE_SIM();  // the memory of a GPU takes seconds to fill
    empty_cache();
  }
  // Bytes of which two do not fit into the device.
  static std::size_t most() { return device_properties(Device::cuda(0)).total_memory * 6 / 10; }
  static Buffer allocate_most() { return allocate(Stream::current(Device::cuda(0)), most()); }
  static std::int64_t ooms() { return stats(Device::cuda(0)).num_ooms; }
};

TEST_F(OomHandlerTest, TheAllocationSucceedsWithTheMemoryThatItFreed) {
  std::optional<Buffer> cache = allocate_most();
  std::vector<std::pair<Device, std::size_t>> calls;
  const OomHandler handler = add_oom_handler([&](Device device, std::size_t bytes) {
    calls.emplace_back(device, bytes);
    const bool frees = cache.has_value();
    cache.reset();
    return frees;
  });
  const std::int64_t before = ooms();
  const Buffer buffer = allocate_most();
  EXPECT_NE(buffer.data(), nullptr);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].first, Device::cuda(0));
  EXPECT_GE(calls[0].second, most());
  EXPECT_EQ(ooms(), before);
  // Now it has nothing to free.
  EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
  EXPECT_EQ(calls.size(), 2U);
  EXPECT_EQ(ooms(), before + 1);
}

TEST_F(OomHandlerTest, MemoryOfAnotherStreamServesToo) {
  const Stream other = Stream::from_pool(Device::cuda(0));
  std::optional<Buffer> cache = allocate(other, most());
  const OomHandler handler = add_oom_handler([&](Device, std::size_t) {
    const bool frees = cache.has_value();
    cache.reset();
    return frees;
  });
  EXPECT_NE(allocate_most().data(), nullptr);
}

TEST_F(OomHandlerTest, ItIsCalledAsOftenAsItAsksForAnotherAttempt) {
  std::vector<Buffer> caches;
  for (int i = 0; i < 6; ++i) {
    caches.push_back(allocate(Stream::current(Device::cuda(0)), most() / 4));
  }
  int calls = 0;
  const OomHandler handler = add_oom_handler([&](Device, std::size_t) {
    ++calls;
    if (caches.empty()) return false;
    caches.pop_back();
    return true;
  });
  EXPECT_NE(allocate_most().data(), nullptr);
  EXPECT_GE(calls, 3);
  EXPECT_GE(caches.size(), 1U);
}

TEST_F(OomHandlerTest, TheNewestIsCalledFirstUntilOneFreesMemory) {
  std::optional<Buffer> cache = allocate_most();
  std::vector<int> order;
  const auto add = [&](int number, bool frees) {
    return add_oom_handler([&, number, frees](Device, std::size_t) {
      order.push_back(number);
      if (!frees || !cache) return false;
      cache.reset();
      return true;
    });
  };
  const OomHandler first = add(1, true);
  const OomHandler second = add(2, true);
  const OomHandler third = add(3, false);
  (void)allocate_most();
  EXPECT_THAT(order, ElementsAre(3, 2));
}

TEST_F(OomHandlerTest, ARemovedFunctionIsNotCalled) {
  const Buffer live = allocate_most();
  int calls = 0;
  const auto count = [&](Device, std::size_t) { return ++calls < 0; };
  {
    OomHandler moved_from = add_oom_handler(count);
    OomHandler handler = std::move(moved_from);
    moved_from.remove();
    EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
    EXPECT_EQ(calls, 1);
    handler = add_oom_handler(count);
    EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
    EXPECT_EQ(calls, 2);
    handler.remove();
    handler.remove();
    EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
    handler = add_oom_handler(count);
  }
  EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
  EXPECT_EQ(calls, 2);
}

TEST_F(OomHandlerTest, ItMayRemoveItself) {
  const Buffer live = allocate_most();
  int calls = 0;
  std::optional<OomHandler> handler;
  handler = add_oom_handler([&](Device, std::size_t) {
    ++calls;
    handler.reset();
    return true;
  });
  EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
  EXPECT_EQ(calls, 1);
}

TEST_F(OomHandlerTest, RemovalWaitsForACallInAnotherThread) {
  const Buffer live = allocate_most();
  std::latch entered(1);
  std::latch goes_on(1);
  std::atomic<bool> has_left{false};
  std::optional<OomHandler> handler = add_oom_handler([&](Device, std::size_t) {
    entered.count_down();
    goes_on.wait();
    has_left = true;
    return false;
  });
  std::thread allocates([] { EXPECT_THROW((void)allocate_most(), OutOfMemoryError); });
  entered.wait();
  std::thread removes([&] {
    handler.reset();
    EXPECT_TRUE(has_left);
  });
  goes_on.count_down();
  removes.join();
  allocates.join();
}

TEST_F(OomHandlerTest, ItsExceptionsCountAsFalse) {
  const Buffer live = allocate_most();
  const OomHandler handler =
      add_oom_handler([](Device, std::size_t) -> bool { throw std::runtime_error("no"); });
  EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
}

TEST_F(OomHandlerTest, AFunctionThatFreesNothingIsCalledOnceForARequest) {
  const Buffer live = allocate_most();
  std::vector<int> order;
  const OomHandler first = add_oom_handler([&](Device, std::size_t) {
    order.push_back(1);
    return true;
  });
  const OomHandler second = add_oom_handler([&](Device device, std::size_t) {
    order.push_back(2);
    (void)allocate(Stream::current(device), 1000);  // is free again
    return true;
  });
  for (int round = 0; round < 2; ++round) {
    order.clear();
    EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
    EXPECT_THAT(order, ElementsAre(2, 1));
  }
}

TEST_F(OomHandlerTest, AFunctionThatFreesSmallBlocksIsCalledAgain) {
  const Buffer live = allocate_most();
  std::vector<Buffer> caches;
  for (int i = 0; i < 5; ++i) caches.push_back(allocate(Stream::current(Device::cuda(0)), 512));
  int calls = 0;
  const OomHandler handler = add_oom_handler([&](Device, std::size_t) {
    ++calls;
    if (!caches.empty()) caches.pop_back();
    return true;
  });
  EXPECT_THROW((void)allocate_most(), OutOfMemoryError);
  EXPECT_EQ(calls, 6);
}

TEST_F(OomHandlerTest, RequestsThatCannotFitCallNone) {
  int calls = 0;
  const OomHandler handler = add_oom_handler([&](Device, std::size_t) { return ++calls < 0; });
  const std::size_t total = device_properties(Device::cuda(0)).total_memory;
  EXPECT_THROW((void)allocate(Stream::current(Device::cuda(0)), 2 * total), OutOfMemoryError);
  EXPECT_EQ(calls, 0);
}

TEST_F(OomHandlerTest, AnEmptyFunctionIsRefused) {
  EXPECT_THAT([] { (void)add_oom_handler({}); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr(
                  "add_oom_handler: expected a function, but got an empty one")));
}

}  // namespace
}  // namespace gantry::memory
