#include <gantry/extend/forwarding_driver.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// Notes the names of the calls; refuses one of them.
class Tracer final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  std::vector<std::string> calls;
  std::string refused;

 protected:
  void before_call(const char* call) override {
    calls.emplace_back(call);
    if (refused == call) throw std::runtime_error("refused");
  }
  void before_noexcept_call(const char* call) noexcept override {
    calls.push_back(std::string(call) + " (noexcept)");
  }
};

class ForwardingDriverTest : public testing::DriverTest {
 protected:
  Tracer tracer_{driver()};
};

TEST_F(ForwardingDriverTest, PassesCallsAndResultsOn) {
  EXPECT_EQ(tracer_.platform(), driver().platform());
  EXPECT_EQ(tracer_.device_count(), driver().device_count());
  void* const data = tracer_.allocate(0, 100);
  EXPECT_EQ(tracer_.pointer_info(data).kind, PointerKind::device);
  tracer_.deallocate(0, data);
  const NativeEvent event = tracer_.create_event(0, {});
  EXPECT_TRUE(tracer_.event_reached(event));
  tracer_.destroy_event(event);
  EXPECT_THAT(tracer_.calls,
              ElementsAre("device_count", "allocate", "pointer_info", "deallocate", "create_event",
                          "event_reached (noexcept)", "destroy_event (noexcept)"));
}

TEST_F(ForwardingDriverTest, AnExceptionEndsTheCall) {
  tracer_.refused = "set_device";
  const int before = driver().current_device();
  EXPECT_THROW(tracer_.set_device(driver().device_count() - 1), std::runtime_error);
  EXPECT_EQ(driver().current_device(), before);
}

// The caller of retain_by_capture has given its data away, whether or not the call succeeds.
TEST_F(ForwardingDriverTest, ARefusedCaptureReleasesWhatItWasGiven) {
  tracer_.refused = "retain_by_capture";
  int released = 0;
  const auto release = [](void* data) { ++*static_cast<int*>(data); };
  EXPECT_THROW(tracer_.retain_by_capture({.device = 0, .handle = nullptr}, release, &released),
               std::runtime_error);
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace gantry
