// The driver calls of a communicator's operation beside its kernel.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gantry/streams/stream_guard.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

class CallCostTest : public testing::LocalGroupTest {
 protected:
  // Events that one all_reduce of a group of two records on both ranks.
  std::uint64_t recorded(std::vector<Communicator>& group, std::vector<Tensor>& tensors) {
    const testing::FaultDriver counting;
    testing::rank_threads(
        2,
        [&](int rank) {
          const auto mine = static_cast<std::size_t>(rank);
          const DeviceGuard guard(tensors[mine].device());
          group[mine].all_reduce(tensors[mine]);
        },
        std::chrono::seconds(60), [&] { group.front().abort(); });
    for (const Device device : devices(2)) synchronize(device);
    return counting.calls("record_event");
  }
};

TEST_F(CallCostTest, RecordsOneEventAndOneMoreBehindAResultThatIsCopiedBack) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices(2));
  std::vector<Tensor> dense;
  std::vector<Tensor> strided;
  for (const Device device : devices(2)) {
    dense.push_back(ones({100}, {.device = device}));
    strided.push_back(ones({100, 2}, {.device = device}).select(1, 0));
  }
  (void)recorded(group, dense);
  // For the call's Work and for what follows in the group; for the Work of a copied result.
  EXPECT_EQ(recorded(group, dense), 2u * 1u);
  EXPECT_EQ(recorded(group, strided), 2u * 2u);
  EXPECT_EQ(strided[0].amax().item<int>(), 2);
}

TEST_F(CallCostTest, BranchesOfAGraphWaitForEachOtherAlsoIfAnotherIsCapturedMeanwhile) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Communicator> group = Communicator::local(devices(2));
  Communicator mine = group.front();
  const DeviceGuard device(mine.device());
  const Tensor tensor = ones({100}, {.device = mine.device()});
  synchronize(mine.device());
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(Stream::from_pool(mine.device()));
  const auto& [first, branch, other] = std::tie(streams[0], streams[1], streams[2]);
  const testing::FaultDriver counting;
  driver().begin_capture(first.native(), CaptureMode::relaxed);
  driver().begin_capture(other.native(), CaptureMode::relaxed);
  branch.wait(first);
  const auto waits_in_a_call_on = [&](const Stream& stream) {
    const StreamGuard guard(stream);
    const std::uint64_t before = counting.calls("wait_event");
    mine.all_reduce(tensor);
    return counting.calls("wait_event") - before;
  };
  EXPECT_EQ(waits_in_a_call_on(first), 0u);
  EXPECT_EQ(waits_in_a_call_on(other), 0u);
  EXPECT_EQ(waits_in_a_call_on(branch), 1u);
  EXPECT_EQ(waits_in_a_call_on(other), 0u);
  EXPECT_EQ(waits_in_a_call_on(first), 1u);
  first.wait(branch);
  for (const Stream& stream : {first, other}) {
    driver().destroy_graph(driver().end_capture(stream.native()));
  }
}

}  // namespace
}  // namespace gantry
