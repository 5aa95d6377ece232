// Errors under GANTRY_LAUNCH_BLOCKING=1, which the test is registered with: thrown by the call that
// caused them, with its name and the caller's line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::HasSubstr;

class LaunchBlockingErrorsTest : public gantry::testing::DeviceTest {
 protected:
  static std::string index_error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const IndexError& error) {
      return error.what();
    }
    return "no IndexError";
  }

  const Device device_ = Device::cuda(0);
};

TEST_F(LaunchBlockingErrorsTest, NameTheOperationAndTheCallersLine) {
  const Tensor rows = arange(0, 10, 1, device_);
  const Tensor bad = arange(99, 102, 1, device_);
  Tensor target = zeros({10}, {.dtype = i64, .device = device_});
  const int line = __LINE__ + 1;
  const auto select = [&] { static_cast<void>(rows.index_select(0, bad)); };
  const std::string selected = index_error_of(select);
  EXPECT_THAT(selected, HasSubstr("index_select on cuda:0: index 99 is out of bounds"));
  EXPECT_THAT(selected, HasSubstr("gantry::Tensor::index_select"));
  EXPECT_THAT(selected, HasSubstr("launch_blocking_errors_test.cpp:" + std::to_string(line)));
  const std::string scattered = index_error_of(
      [&] { target.scatter_(0, bad, ones({3}, {.dtype = i64, .device = device_})); });
  EXPECT_THAT(scattered, HasSubstr("scatter on cuda:0: index 99 is out of bounds"));
  EXPECT_THAT(scattered, HasSubstr("launch_blocking_errors_test.cpp:"));
  // They were told: what follows works.
  EXPECT_EQ(rows.sum().item<std::int64_t>(), 45);
  synchronize(device_);
}

}  // namespace
