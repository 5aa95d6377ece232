// Copies to and from memory that only its own device may use, on devices with peer access.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/closed_memory.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::ClosedMemory;
using testing::elements;
using testing::Layout;

class ClosedMemoryTest : public testing::DeviceTest {
 protected:
  static constexpr Device kHere = Device::cuda(0);
  static constexpr Device kThere = Device::cuda(1);

  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(2);
    for (const Device device : {kHere, kThere}) {
      if (!driver().supports_virtual_memory(device.index)) GTEST_SKIP() << "needs virtual memory";
    }
    if (!can_access_peer(kHere, kThere) || !can_access_peer(kThere, kHere)) {
      GTEST_SKIP() << "needs peer access between cuda:0 and cuda:1";
    }
  }

  // A tensor in closed memory.
  static Tensor closed(Layout layout, DType dtype, Device device) {
    const auto memory = std::make_shared<ClosedMemory>(device);
    memory::set_allocator(device, memory);
    const Tensor result = testing::patterned(layout, dtype, device);
    memory::set_allocator(device, nullptr);
    EXPECT_FALSE(result.storage().is_peer_accessible());
    return result;
  }
  static void expect_copies(const Tensor& out, const Tensor& source) {
    out.copy_(source);
    std::vector<double> wanted;
    for (const double value : elements(source)) {
      wanted.push_back(testing::converted(value, source.dtype(), out.dtype()));
    }
    EXPECT_EQ(elements(out), wanted);
  }
};

TEST_F(ClosedMemoryTest, CopiesGoToAndFromOtherDevices) {
  for (const Layout from : {Layout::contiguous, Layout::transposed, Layout::sliced}) {
    for (const Layout to : {Layout::contiguous, Layout::transposed, Layout::sliced}) {
      for (const DType dtype : {f32, f16}) {
        SCOPED_TRACE(::testing::Message() << from << " to " << to << " " << dtype);
        expect_copies(closed(to, dtype, kThere), testing::patterned(from, f32, kHere));
        expect_copies(testing::patterned(to, dtype, kThere), closed(from, f32, kHere));
      }
    }
  }
}

}  // namespace
}  // namespace gantry
