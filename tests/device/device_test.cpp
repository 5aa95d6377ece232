#include <gantry/device/device.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;

class DeviceCallTest : public testing::DeviceTest {};

struct ParseCase {
  const char* text;
  DeviceType type;
  int index;
  const char* written;
};

class DeviceParseTest : public ::testing::TestWithParam<ParseCase> {};

TEST_P(DeviceParseTest, ReadsAndWritesBack) {
  const ParseCase& expected = GetParam();
  const Device device(expected.text);
  EXPECT_EQ(device.type, expected.type);
  EXPECT_EQ(device.index, expected.index);
  EXPECT_EQ(device.str(), expected.written);
  std::ostringstream out;
  out << device;
  EXPECT_EQ(out.str(), expected.written);
}

INSTANTIATE_TEST_SUITE_P(Texts, DeviceParseTest,
                         ::testing::Values(ParseCase{"cpu", DeviceType::cpu, 0, "cpu"},
                                           ParseCase{"cpu:0", DeviceType::cpu, 0, "cpu"},
                                           ParseCase{"cuda", DeviceType::cuda, -1, "cuda"},
                                           ParseCase{"cuda:0", DeviceType::cuda, 0, "cuda:0"},
                                           ParseCase{"cuda:17", DeviceType::cuda, 17, "cuda:17"}));

class DeviceBadTextTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceBadTextTest, ThrowsInvalidArgumentThatQuotesTheText) {
  try {
    const Device device(GetParam());
    FAIL() << "parsed as " << device;
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("Invalid device string: '" + std::string(GetParam()) + "'"));
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, DeviceBadTextTest,
                         ::testing::Values("", "cuda:x", "cuda:", "cuda:-1", "cuda:+1", "cuda:01",
                                           "cuda:1x", "cuda: 1", "cuda:1:2", "cuda0", "CUDA:0",
                                           "gpu", " cuda", "cuda ", "cpu:1", "cpu:", "cuda.1", ":0",
                                           "cuda:99999999999", "mps"));

TEST(DeviceTest, EqualsByTypeAndIndex) {
  EXPECT_EQ(Device("cuda:1"), Device::cuda(1));
  EXPECT_EQ(Device("cpu"), Device::cpu());
  EXPECT_EQ(Device(), Device::cpu());
  EXPECT_NE(Device::cuda(0), Device::cuda(1));
  EXPECT_NE(Device::cuda(0), Device::cpu());
  EXPECT_NE(Device::cuda(), Device::cuda(0));
}

TEST(DeviceTest, ComparesWithNamesWithoutThrowing) {
  const std::string name = "cuda:1";
  EXPECT_TRUE(name == Device::cuda(1));
  EXPECT_TRUE(Device::cuda(1) == std::string_view(name));
  EXPECT_TRUE(Device::cuda(1) == "cuda:1");
  EXPECT_TRUE(Device::cpu() == std::string("cpu:0"));
  for (const std::string text : {"", "gpu", "cuda:x", "cuda:2"}) {
    EXPECT_FALSE(text == Device::cuda(1)) << text;
    EXPECT_TRUE(Device::cuda(1) != text) << text;
    static_assert(noexcept(std::declval<const Device&>() == text));
  }
  EXPECT_FALSE(Error("no device here").device() == Device::cpu());
}

TEST(DeviceTest, AreOrdered) {
  EXPECT_LT(Device::cpu(), Device::cuda(0));
  EXPECT_LT(Device::cuda(0), Device::cuda(1));
  const std::map<Device, int> by_device{{Device::cuda(1), 1}, {Device::cpu(), 0}};
  EXPECT_EQ(by_device.begin()->first, Device::cpu());
}

TEST(DeviceTest, HashesDistinctDevicesApart) {
  std::unordered_set<std::size_t> hashes;
  for (int i = -1; i < 16; ++i) hashes.insert(std::hash<Device>{}(Device::cuda(i)));
  hashes.insert(std::hash<Device>{}(Device::cpu()));
  EXPECT_EQ(hashes.size(), 18u);
}

TEST(DeviceTest, CpuResolvesToItselfWithoutAPlatform) {
  EXPECT_EQ(Device::cpu().resolved(), Device::cpu());
  EXPECT_THROW((void)Device(DeviceType::cpu, 3).resolved(), InvalidArgument);
}

TEST_F(DeviceCallTest, CurrentDeviceFollowsSetDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  set_device(Device::cuda(1));
  EXPECT_EQ(current_device(), Device::cuda(1));
  EXPECT_EQ(Device::cuda().resolved(), Device::cuda(1));
  set_device(Device::cuda());
  EXPECT_EQ(current_device(), Device::cuda(1));
  set_device(Device::cuda(0));
  EXPECT_EQ(Device("cuda").resolved(), Device::cuda(0));
}

TEST_F(DeviceCallTest, EveryThreadHasItsOwnCurrentDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  set_device(Device::cuda(1));
  int first = -1;
  int second = -1;
  std::thread([&] {
    first = current_device().index;
    set_device(Device::cuda(0));
    second = current_device().index;
  }).join();
  EXPECT_EQ(first, 0) << "a new thread starts on device 0";
  EXPECT_EQ(second, 0);
  EXPECT_EQ(current_device(), Device::cuda(1));
}

TEST_F(DeviceCallTest, InvalidDeviceChangesNothing) {
  const int count = device_count();
  const Device before = current_device();
  const std::string expected = "invalid device cuda:" + std::to_string(count) +
                               ": this process sees " + std::to_string(count) + " device" +
                               (count == 1 ? "" : "s");
  const auto expect_rejected = [&](auto call) {
    try {
      call(Device::cuda(count));
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), expected);
      EXPECT_EQ(error.device(), Device::cuda(count).str());
    }
    EXPECT_EQ(current_device(), before);
  };
  expect_rejected([](Device device) { set_device(device); });
  expect_rejected([](Device device) { synchronize(device); });
  expect_rejected([](Device device) { (void)device.resolved(); });
  EXPECT_THROW(set_device(Device::cuda(-2)), InvalidArgument);
  EXPECT_THROW(set_device(Device::cuda(1 << 30)), InvalidArgument);
}

TEST_F(DeviceCallTest, CpuIsNoCurrentDevice) {
  try {
    set_device(Device::cpu());
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "set_device: expected a CUDA device, but got cpu");
  }
  EXPECT_THROW(synchronize(Device::cpu()), InvalidArgument);
}

TEST_F(DeviceCallTest, SynchronizeWaitsForTheWholeDevice) {
  Driver& native = driver();
  const NativeStream stream = native.create_stream(0, 0);
  bool ran = false;
  native.launch_host_function(
      stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran);
  synchronize(Device::cuda(0));
  EXPECT_TRUE(ran);
  native.destroy_stream(stream);
}

TEST_F(DeviceCallTest, SynchronizeKeepsTheCurrentDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  synchronize(Device::cuda(1));
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(DeviceCallTest, IsInitializedOnceADeviceWasUsed) {
  init();
  EXPECT_TRUE(is_initialized());
  EXPECT_TRUE(is_available());
  EXPECT_FALSE(in_bad_fork());
  EXPECT_EQ(device_count(), driver().device_count());
  EXPECT_EQ(platform(), driver().platform());
}

TEST_F(DeviceCallTest, DevicesAreListedByIndex) {
  std::vector<Device> expected;
  for (int i = 0; i < device_count(); ++i) expected.push_back(Device::cuda(i));
  EXPECT_EQ(devices(), expected);
  EXPECT_FALSE(devices().empty());
}

}  // namespace
}  // namespace gantry
