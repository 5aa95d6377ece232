#include <gmock/gmock.h>

#include <set>
#include <tuple>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/extend/forwarding_driver.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tools/check/bandwidth.hpp"

namespace gantry::check {
namespace {

using ::testing::HasSubstr;

TEST(MeasurementsTest, EveryWayIsListedOnce) {
  for (const int devices : {0, 1, 2, 5}) {
    for (const std::size_t nodes : {1U, 3U}) {
      std::set<std::tuple<Route, int, int>> seen;
      const auto all = list_measurements(devices, nodes);
      for (const Measurement& one : all) {
        EXPECT_TRUE(seen.emplace(one.route, one.device, one.other).second);
        const bool is_peer = one.route == Route::write || one.route == Route::read;
        EXPECT_LT(one.other, is_peer ? devices : static_cast<int>(nodes));
        EXPECT_FALSE(is_peer && one.device == one.other);
      }
      EXPECT_EQ(all.size(), 2 * static_cast<std::size_t>(devices) *
                                (nodes + static_cast<std::size_t>(std::max(0, devices - 1))));
    }
  }
}

TEST(MeasurementsTest, NodesAreParsed) {
  const HostNode node = parse_host_node("3:0-1,8");
  EXPECT_EQ(node.id, 3);
  EXPECT_EQ(node.cpus.str(), "0-1,8");
  EXPECT_THROW(parse_host_node("3"), InvalidArgument);
  EXPECT_THROW(parse_host_node("x:0"), InvalidArgument);
  EXPECT_THROW(parse_host_node("-1:0"), InvalidArgument);
}

// Copies of driver().copy() lose their last bytes while `loses` is set.
class LosingDriver : public ForwardingDriver {
 public:
  LosingDriver() : ForwardingDriver(*exchange_driver(this)) {}
  ~LosingDriver() override { exchange_driver(&wrapped()); }
  void copy(void* dst, const void* src, std::size_t bytes, NativeStream stream) override {
    wrapped().copy(dst, src, loses ? bytes - kLost : bytes, stream);
  }

  static constexpr std::size_t kLost = 256;
  bool loses = false;
};

class BandwidthBenchTest : public testing::DeviceTest {};

TEST_F(BandwidthBenchTest, EveryWayIsMeasuredAndMovesTheRightBytes) {
  BandwidthBench bench(std::vector{HostNode{-1, {}}});
  for (const Measurement& one : list_measurements(std::min(device_count(), 4), 1)) {
    const Bandwidth result = bench.measure(one);
    const std::string what = std::string(name(one.route)) + " " + std::to_string(one.device) + " " +
                             std::to_string(one.other);
    EXPECT_GT(result.bytes_per_second, 0) << what;
    EXPECT_EQ(result.wrong_bytes, 0U) << what;
    EXPECT_GT(result.bytes, 0U) << what;
    const bool is_peer = one.route == Route::write || one.route == Route::read;
    EXPECT_EQ(result.is_by_kernel,
              is_peer && can_access_peer(Device::cuda(one.device), Device::cuda(one.other)))
        << what;
  }
}

TEST_F(BandwidthBenchTest, LostBytesAreCounted) {
  GANTRY_REQUIRE_DEVICES(2);
  LosingDriver lossy;
  BandwidthBench bench(std::vector{HostNode{-1, {}}});
  EXPECT_EQ(bench.measure({Route::to_host, 0, 0}).wrong_bytes, 0U);
  EXPECT_EQ(bench.measure({Route::write, 1, 0}).wrong_bytes, 0U);
  lossy.loses = true;
  // A byte in 256 is right by chance.
  for (const Route route : {Route::to_host, Route::to_device, Route::write, Route::read}) {
    const Bandwidth result =
        bench.measure({route, 0, route == Route::write || route == Route::read});
    EXPECT_GT(result.wrong_bytes, LosingDriver::kLost / 2) << name(route);
    EXPECT_LE(result.wrong_bytes, LosingDriver::kLost) << name(route);
  }
  lossy.loses = false;
}

TEST_F(BandwidthBenchTest, AFailureLeavesTheOthers) {
  testing::FaultDriver faults;
  BandwidthBench bench(std::vector{HostNode{-1, {}}});
  faults.fail_on("copy", 2, testing::kUnknown);
  EXPECT_THROW((void)bench.measure({Route::to_host, 0, 0}), CudaError);
  EXPECT_EQ(bench.measure({Route::to_host, 0, 0}).wrong_bytes, 0U);
}

TEST_F(BandwidthBenchTest, AHostNodeWithoutCpusHereIsAnError) {
  BandwidthBench bench(std::vector{HostNode{0, machine::CpuSet::parse("1020")}});
  try {
    (void)bench.measure({Route::to_host, 0, 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("failed to use the CPUs 1020 of NUMA node 0"));
  }
}

}  // namespace
}  // namespace gantry::check
