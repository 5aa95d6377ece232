#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class SimMemoryTest : public SimMachineTest {
 protected:
  NativeStream stream_ = driver_.create_stream(0, 0);
};

TEST_F(SimMemoryTest, AllocatesUpToTheCapacityAndCountsPages) {
  const NativeMemoryInfo empty = driver_.memory_info(0);
  EXPECT_EQ(empty.free, empty.total);
  void* one = driver_.allocate(0, 1);
  EXPECT_EQ(driver_.memory_info(0).free, empty.total - sim::round_to_pages(1));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one) % 512, 0u);
  EXPECT_EQ(driver_.memory_info(1).free, driver_.memory_info(1).total);
  EXPECT_EQ(driver_.allocate(0, empty.total), nullptr);
  EXPECT_EQ(driver_.allocate(0, SIZE_MAX), nullptr);
  void* rest = driver_.allocate(0, driver_.memory_info(0).free);
  EXPECT_NE(rest, nullptr);
  EXPECT_EQ(driver_.memory_info(0).free, 0u);
  EXPECT_EQ(driver_.allocate(0, 1), nullptr);
  EXPECT_EQ(driver_.create_chunk(0, sim::AddressSpace::kGranularity), NativeChunk::none);
  driver_.deallocate(0, rest);
  driver_.deallocate(0, one);
  EXPECT_EQ(driver_.memory_info(0).free, empty.total);
  expect_cuda_error(1, "allocating 0 bytes", [&] { (void)driver_.allocate(0, 0); });
}

// A driver of one device with GANTRY_SIM_MEMORY set for that long.
std::unique_ptr<Driver> make_driver_with(const char* memory) {
  const char* before = std::getenv("GANTRY_SIM_MEMORY");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("GANTRY_SIM_MEMORY", memory, 1);
  struct Restore {
    const std::string& value;
    ~Restore() { ::setenv("GANTRY_SIM_MEMORY", value.c_str(), 1); }
  } const restore{saved};
  return make_sim_driver(1);
}

TEST(SimCapacityTest, IsEnoughForOneChunk) {
  for (const char* memory : {"0", "1", "2097151", "1M"}) {
    try {
      (void)make_driver_with(memory);
      ADD_FAILURE() << memory;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(),
                std::string("GANTRY_SIM_MEMORY: expected at least 2M, the least that a device "
                            "hands out, but got '") +
                    memory + "'");
    }
  }
  const auto least = make_driver_with("2M");
  EXPECT_NE(least->allocate(0, 2 * kMiB), nullptr);
}

TEST(SimCapacityTest, ComesFromTheEnvironment) {
  const auto driver = make_driver_with("6MiB");
  EXPECT_EQ(driver->memory_info(0).total, 6 * kMiB);
  EXPECT_EQ(driver->properties(0).total_memory, 6 * kMiB);
  EXPECT_EQ(driver->allocate(0, 7 * kMiB), nullptr);
}

TEST_F(SimMemoryTest, CopiesAndFillsBetweenAllKindsOfMemory) {
  auto* data = static_cast<char*>(driver_.allocate(0, kBytes));
  auto* far = static_cast<char*>(driver_.allocate(1, kBytes));
  auto* pinned = static_cast<char*>(driver_.allocate_pinned(kBytes));
  driver_.fill(data, 'a', kBytes, stream_);
  driver_.fill(data + 1, 'b', 2, stream_);
  driver_.copy(far, data, kBytes, stream_);  // unified addresses: no peer access needed
  driver_.copy_peer(data, 0, far + 1, 1, 2, stream_);
  driver_.copy(pinned, data, 4, stream_);
  driver_.synchronize_stream(stream_);
  EXPECT_EQ(std::string(pinned, 4), "bbba");
  EXPECT_EQ(read(far, 5, stream_), "abbaa");
  driver_.copy(data, pinned + 3, 1, stream_);
  EXPECT_EQ(read(data, 3, stream_), "abb");
  driver_.deallocate(0, data);
  driver_.deallocate(1, far);
  driver_.deallocate_pinned(pinned);
}

TEST_F(SimMemoryTest, PageableSourcesMayChangeAtOnceAndPageableDestinationsAreReady) {
  void* data = driver_.allocate(0, 3 * kMiB);
  std::vector<char> host(3 * kMiB, 'x');
  Gate gate(stream_);
  driver_.copy(data, host.data(), host.size(), stream_);
  std::fill(host.begin(), host.end(), 'y');
  gate.open();
  driver_.copy(host.data(), data, host.size(), stream_);
  EXPECT_EQ(host.front(), 'x');
  EXPECT_EQ(host.back(), 'x');
  driver_.deallocate(0, data);
}

TEST_F(SimMemoryTest, PointerInfoTellsKindAndOwner) {
  int local = 0;
  auto* data = static_cast<char*>(driver_.allocate(2, kBytes));
  void* pinned = driver_.allocate_pinned(10);
  EXPECT_EQ(driver_.pointer_info(&local).kind, PointerKind::unregistered);
  EXPECT_EQ(driver_.pointer_info(nullptr).kind, PointerKind::unregistered);
  EXPECT_EQ(driver_.pointer_info(data + kBytes - 1).kind, PointerKind::device);
  EXPECT_EQ(driver_.pointer_info(data + kBytes - 1).device, 2);
  EXPECT_EQ(driver_.pointer_info(pinned).kind, PointerKind::pinned);
  EXPECT_EQ(driver_.pointer_info(pinned).device, -1);
  driver_.deallocate(2, data);
  driver_.deallocate_pinned(pinned);
  EXPECT_EQ(driver_.pointer_info(data).kind, PointerKind::unregistered);
  EXPECT_EQ(driver_.pointer_info(pinned).kind, PointerKind::unregistered);
}

TEST_F(SimMemoryTest, KernelsReachTheirDevicePinnedMemoryAndEnabledPeers) {
  char local[8];
  auto* own = static_cast<char*>(driver_.allocate(0, kBytes));
  void* far = driver_.allocate(1, kBytes);
  void* pinned = driver_.allocate_pinned(kBytes);
  EXPECT_NO_THROW(sim::check_device_access(0, own, kBytes));
  EXPECT_NO_THROW(sim::check_device_access(0, pinned, kBytes));
  EXPECT_NO_THROW(sim::check_device_access(0, local, 0));
  expect_cuda_error(1, "are host memory, not pinned",
                    [&] { sim::check_device_access(0, local, sizeof local); });
  expect_cuda_error(700, "reach past the end",
                    [&] { sim::check_device_access(0, own + 1, kBytes); });
  expect_cuda_error(700, "peer access from cuda:0 is not enabled",
                    [&] { sim::check_device_access(0, far, kBytes); });
  expect_cuda_error(700, "filling 4096 bytes on stream 1 of cuda:0",
                    [&] { driver_.fill(far, 0, kBytes, stream_); });
  expect_cuda_error(1, "host memory", [&] { driver_.fill(local, 0, sizeof local, stream_); });
  driver_.enable_peer_access(0, 1);
  driver_.enable_peer_access(0, 1);
  EXPECT_NO_THROW(sim::check_device_access(0, far, kBytes));
  expect_cuda_error(700, "peer access from cuda:1",
                    [&] { sim::check_device_access(1, own, kBytes); });
  driver_.deallocate(0, own);
  expect_cuda_error(700, "were freed before", [&] { sim::check_device_access(0, own, 1); });
  driver_.deallocate(1, far);
  driver_.deallocate_pinned(pinned);
}

TEST_F(SimMemoryTest, PeerAccessFollowsTheMachine) {
  EXPECT_TRUE(driver_.can_access_peer(0, 3));
  driver_.peers().allow(0, 3, false);
  EXPECT_FALSE(driver_.can_access_peer(0, 3));
  EXPECT_TRUE(driver_.can_access_peer(3, 0));
  EXPECT_TRUE(driver_.can_access_peer(0, 0));
  expect_cuda_error(217, "enabling peer access from cuda:0 to cuda:3",
                    [&] { driver_.enable_peer_access(0, 3); });
}

TEST_F(SimMemoryTest, CopiesRefuseBadRangesAndChangeNothing) {
  auto* data = static_cast<char*>(driver_.allocate(0, kBytes));
  auto* far = static_cast<char*>(driver_.allocate(1, kBytes));
  char local[16] = {};
  driver_.fill(data, 'k', kBytes, stream_);
  expect_cuda_error(1, "reach past the end",
                    [&] { driver_.copy(data + 8, local, kBytes, stream_); });
  expect_cuda_error(1, "the destination", [&] { driver_.copy_peer(data, 1, far, 1, 8, stream_); });
  expect_cuda_error(1, "the source", [&] { driver_.copy_peer(data, 0, local, 1, 8, stream_); });
  const CopyRegion fits{far, data, 8};
  expect_cuda_error(1, "reach past the end", [&] {
    driver_.copy_batch(std::vector{fits, CopyRegion{far, data + 8, kBytes}}, stream_);
  });
  expect_cuda_error(1, "is no memory of a device", [&] {
    driver_.copy_batch(std::vector{fits, CopyRegion{local, data, 8}}, stream_);
  });
  driver_.deallocate(1, far);
  expect_cuda_error(1, "were freed before", [&] { driver_.copy(data, far, 8, stream_); });
  EXPECT_EQ(read(data, 16, stream_), std::string(16, 'k'));
  driver_.deallocate(0, data);
}

TEST_F(SimMemoryTest, FreeWaitsForTheDeviceAndRefusesWhatItDidNotAllocate) {
  auto* data = static_cast<char*>(driver_.allocate(0, kBytes));
  expect_cuda_error(1, "belongs to cuda:0", [&] { driver_.deallocate(1, data); });
  expect_cuda_error(1, "not the begin", [&] { driver_.deallocate(0, data + 512); });
  expect_cuda_error(1, "not the begin", [&] { driver_.deallocate_pinned(data); });
  int steps = 0;
  for (int i = 0; i < 500; ++i) {
    sim::launch(stream_, [&steps, data] { data[steps++] = 1; });
  }
  driver_.deallocate(0, data);
  EXPECT_EQ(steps, 500);
  expect_cuda_error(1, "freed before", [&] { driver_.deallocate(0, data); });
  driver_.deallocate(0, nullptr);
}

using SimMemoryDeathTest = SimMemoryTest;

TEST_F(SimMemoryDeathTest, UseAfterFreeFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto* data = static_cast<volatile char*>(driver_.allocate(0, kBytes));
        data[0] = 1;
        driver_.deallocate(0, const_cast<char*>(data));
        data[0] = 2;
      },
      "");
}

}  // namespace
}  // namespace gantry::testing
