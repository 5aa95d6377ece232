// Copies between devices without peer access.
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/peer_operands.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::elements;
using testing::Layout;

// A driver without peer access. The simulator rejects accesses to another device's memory that are
// not enabled, so a direct copy fails.
class PeerlessDriver final : public testing::FaultDriver {
 public:
  bool can_access_peer(int from, int to) override { return from == to; }
};

TEST(PeerlessCopyTest, StagesTensorsThatAreNotDense) {
  GANTRY_REQUIRE_DEVICES(2);
  init();
  PeerlessDriver driver;  // before the first peer query, whose result is cached
  ASSERT_FALSE(can_access_peer(Device::cuda(0), Device::cuda(1)));
  for (const Layout from :
       {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::offset, Layout::expanded}) {
    for (const Layout to :
         {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::offset}) {
      for (const DType dtype : {f32, i32, f16}) {
        const Tensor source = testing::patterned(from, f32, Device::cuda(0));
        Tensor out = testing::patterned(to, dtype, Device::cuda(1));
        out.copy_(source);
        std::vector<double> wanted;
        for (const double value : elements(source)) {
          wanted.push_back(testing::converted(value, f32, dtype));
        }
        EXPECT_EQ(elements(out), wanted) << from << " to " << to << " " << dtype;
      }
    }
  }
  Tensor wide = zeros({2, 3}, {.device = "cuda:1"});
  wide.copy_(tensor({1, 2, 3}, {.device = "cuda:0"}));
  EXPECT_EQ(elements(wide), (std::vector<double>{1, 2, 3, 1, 2, 3}));
  synchronize(Device::cuda(0));
  synchronize(Device::cuda(1));
}

TEST(PeerlessCopyTest, PeerOperandsNeedPeerAccess) {
  GANTRY_REQUIRE_DEVICES(2);
  const PeerlessDriver driver;
  const Tensor a = ones({2}, {.device = "cuda:0"});
  const Tensor b = ones({2}, {.device = "cuda:1"});
  const PeerOperands peers;
  EXPECT_ERROR(a.add_(b), DeviceMismatchError,
               "Expected all tensors to be on the same device, but found at least two devices, "
               "cuda:0 and cuda:1! (when checking argument other in add)");
  EXPECT_EQ(elements(a), (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace gantry
