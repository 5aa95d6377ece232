#include "collectives/host/staging.hpp"

#include <gtest/gtest.h>

#include <optional>

#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

// Lets a stream go once the host waits for an event that the stream has not reached.
class ReleasingDriver final : public testing::FaultDriver {
 public:
  void synchronize_event(NativeEvent event) override {
    if (hold && !wrapped().query_event(event)) {
      hold.reset();
      has_released = true;
    }
    testing::FaultDriver::synchronize_event(event);
  }

  std::optional<testing::StreamHold> hold;
  bool has_released = false;
};

class HostStagingTest : public testing::DeviceTest {
 protected:
  static constexpr std::size_t kBytes = 4096;

  const Device device_ = Device::cuda(0);
  const Stream stream_ = Stream::from_pool(device_);
  const Tensor tensor_ = full({kBytes}, 1, {.dtype = DType::u8, .device = device_});
};

TEST_F(HostStagingTest, ItsEndWaitsForFetches) {
  synchronize(device_);
  ReleasingDriver driver;
  {
    HostStaging staging(kBytes);
    driver.hold.emplace(stream_);
    staging.begin(stream_);
    staging.fetch(0, tensor_.data(), kBytes, stream_);
    staging.fetched(stream_);
  }
  EXPECT_TRUE(driver.has_released);
  driver.hold.reset();
  synchronize(device_);
}

TEST_F(HostStagingTest, ItsEndWaitsForDeliveries) {
  synchronize(device_);
  ReleasingDriver driver;
  {
    HostStaging staging(kBytes);
    staging.begin(stream_);
    staging.fetch(0, tensor_.data(), kBytes, stream_);
    staging.fetched(stream_);
    staging.await();
    driver.hold.emplace(stream_);
    staging.deliver(tensor_.data(), staging.outbound(), kBytes, stream_);
    staging.finish(stream_);
  }
  EXPECT_TRUE(driver.has_released);
  driver.hold.reset();
  synchronize(device_);
}

}  // namespace
}  // namespace gantry
