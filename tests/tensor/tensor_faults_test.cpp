// Makes every driver call of tensor operations fail once.
#include <gtest/gtest.h>

#include <functional>

#include <gantry/core/error.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using Numbers = std::vector<float>;

struct Operation {
  const char* name;
  std::function<Numbers()> run;  // a new result each time, as host numbers
  Numbers expected;
};

class TensorFaultsTest : public testing::DeviceTest {
 protected:
  static std::vector<std::size_t> live_bytes() {
    std::vector<std::size_t> bytes;
    for (int i = 0; i < device_count(); ++i) bytes.push_back(memory::allocated(Device::cuda(i)));
    return bytes;
  }
  static void settle() {
    for (int i = 0; i < device_count(); ++i) synchronize(Device::cuda(i));
  }
};

TEST_F(TensorFaultsTest, AnyFailingCallLeavesEverythingUsable) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor host = arange(6, {.dtype = f32}).view({2, 3});
  const Tensor pinned = host.pin_memory();
  const Tensor device = host.cuda(0);
  const Tensor strided = device.t();
  const std::vector<Operation> operations{
      {"upload", [&] { return host.cuda(0).to_vector<float>(); }, {0, 1, 2, 3, 4, 5}},
      {"upload without blocking",
       [&] { return pinned.to(Device::cuda(0), {.non_blocking = true}).to_vector<float>(); },
       {0, 1, 2, 3, 4, 5}},
      {"download", [&] { return strided.cpu().to_vector<float>(); }, {0, 3, 1, 4, 2, 5}},
      {"cross devices", [&] { return device.cuda(1).to_vector<float>(); }, {0, 1, 2, 3, 4, 5}},
      {"cross devices, strided, converted",
       [&] { return strided.to({.dtype = f64, .device = "cuda:1"}).to_vector<float>(); },
       {0, 3, 1, 4, 2, 5}},
      {"compute", [&] { return (device + 1).sum(0).to_vector<float>(); }, {5, 7, 9}},
      {"item", [&] { return Numbers{device.select(0, 1)[2].item<float>()}; }, {5}}};
  int failures = 0;
  for (const Operation& operation : operations) {
    SCOPED_TRACE(operation.name);
    ASSERT_EQ(operation.run(), operation.expected);
    settle();
    testing::FaultDriver faults;
    const std::vector<std::size_t> before = live_bytes();
    faults.reset_counts();
    ASSERT_EQ(operation.run(), operation.expected);
    settle();
    for (const auto& [call, times] : faults.counts()) {
      if (call.starts_with("destroy_") || call == "restore_device") continue;
      for (std::uint64_t nth = 1; nth <= times; ++nth) {
        SCOPED_TRACE(call + " " + std::to_string(nth));
        faults.reset_counts();
        faults.fail_on(call, nth, testing::kInvalidValue);
        try {
          EXPECT_EQ(operation.run(), operation.expected);
        } catch (const Error&) {
          ++failures;
        }
        faults.fail_nothing();
        settle();
        EXPECT_EQ(operation.run(), operation.expected);
        settle();
        EXPECT_EQ(live_bytes(), before);
        EXPECT_EQ(current_device(), Device::cuda(0));
      }
    }
  }
  EXPECT_GT(failures, 20);
}

// The waiting call fails before the copy runs. The memory that the copy will write must not be
// reused.
TEST_F(TensorFaultsTest, MemoryOfAPendingCopyIsNotReused) {
  GANTRY_REQUIRE_SIM();
  const Tensor device = full({1}, 7.0, {.dtype = f32, .device = "cuda:0"});
  settle();
  testing::StreamHold hold(Stream::current(Device::cuda(0)));
  {
    testing::FaultDriver faults;
    faults.fail_on("synchronize_stream", 1, testing::kInvalidValue);
    EXPECT_THROW((void)device.item<float>(), CudaError);
  }
  std::vector<memory::Buffer> others;
  for (int i = 0; i < 64; ++i) {
    others.push_back(memory::pinned(sizeof(float)));
    *static_cast<float*>(others.back().data()) = -1;
  }
  hold.release();
  settle();
  for (const memory::Buffer& other : others) EXPECT_EQ(*static_cast<float*>(other.data()), -1);
  EXPECT_EQ(device.item<float>(), 7);
}

}  // namespace
}  // namespace gantry
