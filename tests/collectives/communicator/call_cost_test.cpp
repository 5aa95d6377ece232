// Costs of a communicator's operation beside its kernel: calls of the driver, and allocations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gantry/streams/stream_guard.hpp>

#include "device/sim/streams/sim_launch.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/counted_new.hpp"
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

// The allocations of `call`, but for those of growing containers.
template <class Call>
std::uint64_t allocations_of(Call call) {
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t before = testing::allocations;
    call();
    least = std::min(least, testing::allocations - before);
  }
  return least;
}

TEST_F(CallCostTest, ACallAllocatesItsWorkItsEventAndLittleElse) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_COUNTED_NEW();
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Communicator> group = Communicator::local(devices(2));
  std::vector<Tensor> sent;
  std::vector<Tensor> received;
  for (const Device device : devices(2)) {
    sent.push_back(ones({100}, {.device = device}));
    received.push_back(ones({100}, {.device = device}));
  }
  // The simulator keeps a kernel's arguments, and names events.
  const Stream stream = Stream::current(devices(1).front());
  Event event;
  const std::uint64_t record = allocations_of([&] { event.record(stream); });
  const std::uint64_t launch = allocations_of(
      [&] { sim::launch(stream.native(), [plan = std::array<char, 64>()] { (void)plan; }); });
  const std::uint64_t launch_of_list = allocations_of(
      [&] { sim::launch(stream.native(), [list = std::vector<int>(2)] { (void)list; }); });
  const auto of_both_ranks = [&](auto call) {
    const std::uint64_t both = allocations_of([&] {
      for (std::size_t rank = 0; rank < 2; ++rank) call(rank, 1 - static_cast<int>(rank));
    });
    for (const Device device : devices(2)) synchronize(device);
    return both;
  };
  EXPECT_EQ(of_both_ranks([&](std::size_t rank, int) { group[rank].all_reduce(sent[rank]); }),
            2 * (launch + record + 2));
  EXPECT_EQ(of_both_ranks([&](std::size_t rank, int) { group[rank].broadcast(sent[rank]); }),
            2 * (launch + record + 2));
  EXPECT_LE(of_both_ranks([&](std::size_t rank, int other) {
              group[rank].send_recv(sent[rank], other, received[rank], other);
            }),
            2 * (launch_of_list + record + 8));
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
