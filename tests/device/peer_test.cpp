#include <gantry/device/peer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "device/peer_access.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class PeerTest : public testing::DeviceTest {};

TEST_F(PeerTest, EveryDeviceReachesItself) {
  for (int i = 0; i < device_count(); ++i) {
    EXPECT_TRUE(can_access_peer(Device::cuda(i), Device::cuda(i)));
    EXPECT_NO_THROW(enable_peer_access(Device::cuda(i), Device::cuda(i)));
  }
}

TEST_F(PeerTest, MatrixAgreesWithTheDriver) {
  const PeerMatrix matrix = peer_matrix();
  ASSERT_EQ(matrix.count, device_count());
  for (int from = 0; from < matrix.count; ++from) {
    for (int to = 0; to < matrix.count; ++to) {
      const bool expected = from == to || driver().can_access_peer(from, to);
      EXPECT_EQ(matrix.can_access(from, to), expected) << from << " -> " << to;
      EXPECT_EQ(can_access_peer(Device::cuda(from), Device::cuda(to)), expected);
    }
  }
}

TEST_F(PeerTest, OnlyLinksBetweenPeersCarryAtomics) {
  const int count = device_count();
  for (int from = 0; from < count; ++from) {
    EXPECT_TRUE(driver().has_peer_atomics(from, from));
    for (int to = 0; to < count; ++to) {
      if (!driver().has_peer_atomics(from, to)) continue;
      EXPECT_TRUE(can_access_peer(Device::cuda(from), Device::cuda(to))) << from << " -> " << to;
    }
  }
}

TEST_F(PeerTest, EnablingTwiceIsFineAndKeepsTheCurrentDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(0), Device::cuda(1))) GTEST_SKIP() << "no peer access 0 -> 1";
  enable_peer_access(Device::cuda(0), Device::cuda(1));
  enable_peer_access(Device::cuda(0), Device::cuda(1));
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(PeerTest, TheDriverIsAskedOnceForAPair) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "no peer access 1 -> 0";
  testing::FaultDriver faults;
  faults.fail_on("enable_peer_access", 1);
  EXPECT_THROW(enable_peer_access(Device::cuda(1), Device::cuda(0)), CudaError);
  enable_peer_access(Device::cuda(1), Device::cuda(0));
  enable_peer_access(Device::cuda(1), Device::cuda(0));
  EXPECT_EQ(faults.calls("enable_peer_access"), 2U) << "the failed call and one more";
}

// The calls of two listeners of one test. The second one fails when it is told to.
struct Listeners {
  std::vector<std::pair<int, int>> first;
  std::vector<std::pair<int, int>> second;
  bool fails = true;
};

TEST_F(PeerTest, AccessThatAListenerDidNotActOnIsGivenAnew) {
  GANTRY_REQUIRE_DEVICES(3);
  const Device from = Device::cuda(2);
  const Device to = Device::cuda(0);
  if (!can_access_peer(from, to)) GTEST_SKIP() << "no peer access 2 -> 0";
  // Listeners are never removed.
  static auto& heard = *new Listeners;
  on_peer_access([](int source, int target) { heard.first.emplace_back(source, target); });
  on_peer_access([](int source, int target) {
    heard.second.emplace_back(source, target);
    if (heard.fails) throw std::runtime_error("the second listener fails");
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(enable_peer_access(from, to), std::runtime_error);
    EXPECT_THAT(devices_with_access_to(0), Not(Contains(2)));
  }
  heard.fails = false;
  enable_peer_access(from, to);
  EXPECT_THAT(devices_with_access_to(0), Contains(2));
  EXPECT_THAT(devices_with_access_to(2), Not(Contains(0))) << "access has a direction";
  enable_peer_access(from, to);
  const std::vector<std::pair<int, int>> thrice(3, {2, 0});
  EXPECT_EQ(heard.first, thrice);
  EXPECT_EQ(heard.second, thrice) << "two failures and the success";
}

TEST_F(PeerTest, RejectsWhatIsNoDevice) {
  const Device past = Device::cuda(device_count());
  EXPECT_THROW((void)can_access_peer(Device::cpu(), Device::cuda(0)), InvalidArgument);
  EXPECT_THROW((void)can_access_peer(Device::cuda(0), past), InvalidArgument);
  EXPECT_THROW((void)can_access_peer(past, Device::cuda(0)), InvalidArgument);
  EXPECT_THROW(enable_peer_access(Device::cuda(0), past), InvalidArgument);
  EXPECT_THROW(enable_peer_access(Device::cuda(0), Device::cpu()), InvalidArgument);
}

TEST(PeerMatrixTest, PrintsOneRowADevice) {
  PeerMatrix matrix{.count = 2, .access = {true, false, true, true}};
  std::ostringstream out;
  out << matrix;
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("cuda:0      self      no"));
  EXPECT_THAT(text, HasSubstr("cuda:1       yes    self"));
}

}  // namespace
}  // namespace gantry
