// Who frees the memory of a communicator, and when.

#include "collectives/p2p/workspace.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/protocol/layout.hpp"
#include "collectives/selection/descriptor.hpp"
#include "job/flight_file.hpp"
#include "job/flight_folder.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/control/control_group.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::rank_threads;
using testing::RankProcesses;

// Ranks that count in one file.
class WorkspaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    descriptor_ = memfd_create("workspace-counts", 0);
    ASSERT_GE(descriptor_, 0);
    ASSERT_EQ(ftruncate(descriptor_, 4096), 0);
  }
  void TearDown() override {
    if (descriptor_ >= 0) close(descriptor_);
  }
  [[nodiscard]] RankProcesses start(const std::string& what, int ranks = 2) const {
    const std::string actor = GANTRY_TEST_PROGRAM_DIR "/workspace_actor";
    const std::string file = fmt::format("/proc/{}/fd/{}", getpid(), descriptor_);
    return RankProcesses(
        {.ranks = ranks, .argv = {actor, what, file}, .environment = {{"GANTRY_P2P", "on"}}});
  }
  static void expect_ok(testing::Subprocess& process) {
    const testing::Outcome outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("ok"));
  }

 private:
  int descriptor_ = -1;
};

TEST_F(WorkspaceTest, IsFreedWhenTheOtherRanksHaveClosedItWhateverWorkIsKept) {
  RankProcesses ranks = start("work");
  for (int rank = 0; rank < 2; ++rank) expect_ok(ranks[rank]);
}

TEST_F(WorkspaceTest, OfABrokenGroupIsKeptUntilItIsClosed) {
  RankProcesses ranks = start("broken");
  for (int rank = 0; rank < 2; ++rank) expect_ok(ranks[rank]);
}

TEST_F(WorkspaceTest, IsNotKeptForTheDead) {
  RankProcesses ranks = start("dead");
  expect_ok(ranks[0]);
}

TEST_F(WorkspaceTest, OfAMachineAmongSeveralIsFreedWhenItsOtherRanksHaveClosedIt) {
  RankProcesses ranks = start("layers", 4);
  for (int rank = 0; rank < 4; ++rank) expect_ok(ranks[rank]);
}

using LocalWorkspaceTest = testing::LocalGroupTest;

// A bootstrap with a call before each exchange, and one behind.
class ObservedBootstrap final : public Bootstrap {
 public:
  using Observer = std::function<void(int exchange)>;
  ObservedBootstrap(std::unique_ptr<Bootstrap> wrapped, Observer before, Observer behind)
      : wrapped_(std::move(wrapped)), before_(std::move(before)), behind_(std::move(behind)) {}

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const int exchange = ++exchanges_;
    if (before_) before_(exchange);
    std::vector<std::string> all = wrapped_->all_gather(bytes);
    if (behind_) behind_(exchange);
    return all;
  }
  int lost_rank() const noexcept override { return wrapped_->lost_rank(); }
  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    return wrapped_->subset(members, name);
  }

 private:
  std::unique_ptr<Bootstrap> wrapped_;
  Observer before_;
  Observer behind_;
  int exchanges_ = 0;
};

// Rank 1 misses the deadline of an exchange while rank 0 is about to open its memory.
TEST_F(LocalWorkspaceTest, OpensNoMemoryOfARankThatGaveUp) {
  GANTRY_REQUIRE_DEVICES(2);
  mallopt(M_PERTURB, 0xa5);  // freed memory is not as it was
  testing::ControlGroup control(2);
  std::vector<std::unique_ptr<Bootstrap>> local = make_local_bootstraps(2);
  std::latch has_given_up(1);
  std::optional<ObservedBootstrap> bootstraps[2];
  bootstraps[0].emplace(std::move(local[0]), nullptr, [&](int exchange) {
    if (exchange == 1) has_given_up.wait();
  });
  bootstraps[1].emplace(
      std::move(local[1]),
      [](int exchange) {
        if (exchange == 2) throw TimeoutError("too late", std::vector<int>{0});
      },
      nullptr);
  rank_threads(2, [&](int rank) {
    const DeviceGuard guard(Device::cuda(rank));
    const auto make = [&] {
      Workspace(*bootstraps[rank], control[rank], rank, std::size_t{1} << 20);
    };
    if (rank == 0) {
      EXPECT_THROW(make(), PeerLostError);
      return;
    }
    EXPECT_THROW(make(), TimeoutError);
    bootstraps[1].reset();  // tells rank 0 of the loss
    has_given_up.count_down();
  });
  mallopt(M_PERTURB, 0);
}

TEST(WorkspaceMemoryTest, IsFoundByItsNumberWhileItLives) {
  void* const data = driver().allocate(0, 4096);
  std::shared_ptr<WorkspaceMemory> memory =
      WorkspaceMemory::own(0, static_cast<std::byte*>(data), 4096);
  const std::uint64_t number = memory->number();
  EXPECT_NE(number, 0U);
  EXPECT_EQ(WorkspaceMemory::find(number), memory);
  memory.reset();
  EXPECT_EQ(WorkspaceMemory::find(number), nullptr);
  EXPECT_EQ(WorkspaceMemory::find(0), nullptr);
}

TEST_F(LocalWorkspaceTest, GoesToTheNextGroupAndIsFreedByEmptyCacheWhateverWorkIsKept) {
  GANTRY_REQUIRE_DEVICES(2);
  // The allocator's cache counts as free: its size depends on when the streams get on.
  const auto free_bytes = [](int device) {
    const auto cached = memory::stats(Device::cuda(device)).reserved_bytes.all.current;
    return driver().memory_info(device).free + static_cast<std::size_t>(cached);
  };
  std::vector<Communicator> parents = Communicator::local(devices(2));
  std::vector<std::optional<Work>> kept(2);
  std::size_t before[2] = {};
  for (int round = 0; round < 20; ++round) {
    std::vector<Communicator> group(2);
    rank_threads(2, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      const DeviceGuard guard(Device::cuda(rank));
      group[at] = parents[at].split(0, 0);
      Tensor tensor = full({1000}, rank + 1, {.dtype = f32, .device = Device::cuda(rank)});
      kept[at] = group[at].all_reduce(tensor);
      EXPECT_EQ(tensor[0].item<float>(), 3);
    });
    for (int rank = 0; rank < 2; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (round == 0) before[at] = free_bytes(rank);
      EXPECT_GE(free_bytes(rank), before[at]) << "rank " << rank << ", round " << round;
    }
    group.clear();
    memory::empty_cache();  // not while the parents live
    for (const auto& work : kept) EXPECT_TRUE(work->query());
  }
  parents.clear();
  memory::empty_cache();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GE(free_bytes(rank), before[rank] + 2 * protocol::kWorkspaceBytes) << "rank " << rank;
  }
}

// A free waits for devices with access, whose kernels may wait for the thread that frees.
TEST_F(LocalWorkspaceTest, EndsWhileARankWaitsInAnotherGroup) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> parents = Communicator::local(devices(2));
  std::latch is_left(1);
  std::latch is_waiting(1);
  rank_threads(2, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const DeviceGuard guard(Device::cuda(rank));
    const Tensor tensor = full({1000}, rank + 1, {.dtype = f32, .device = Device::cuda(rank)});
    std::optional<Communicator> group = parents[at].split(0, 0);
    group->all_reduce(tensor).synchronize();
    if (rank == 1) {
      group.reset();
      is_left.count_down();
      Work work = parents[at].all_reduce(tensor);
      is_waiting.count_down();
      work.synchronize();
    } else {
      is_left.wait();
      is_waiting.wait();
      group.reset();
      parents[at].all_reduce(tensor).synchronize();
    }
    EXPECT_EQ(tensor[0].item<float>(), 6);
  });
}

// The same holds for work that is not gantry's, when no group is left.
TEST_F(LocalWorkspaceTest, TheLastRankEndsWhileAnotherDeviceIsBusy) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices(2));
  rank_threads(2, [&](int rank) {
    const Tensor tensor = ones({1000}, {.dtype = f32, .device = Device::cuda(rank)});
    group[static_cast<std::size_t>(rank)].all_reduce(tensor).synchronize();
  });
  group.pop_back();
  testing::StreamHold hold(Stream::from_pool(Device::cuda(1)));
  group.clear();
  hold.release();
}

// Some links are not NVLinks.
class DividingDriver final : public testing::FaultDriver {
 public:
  bool has_peer_atomics(int from, int to) override { return from == to || from + to != 3; }
};

// One link among others decides, for the ranks that it is not between, too.
TEST_F(LocalWorkspaceTest, LinesAreNotSentWhereALinkMayDivideThem) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(3);
  const testing::FlightFolder folder;
  setenv("GANTRY_COLL_ALGO", "ll128", 1);
  const auto expect_algorithm = [](Algorithm algorithm) {
    on_ranks(3, [&](testing::CollectiveSuite&, Communicator& group) {
      Tensor tensor = ones({1001}, {.dtype = f32, .device = group.device()});
      group.all_reduce(tensor).synchronize();
      EXPECT_EQ(tensor.amin().item<float>(), 3);
      const auto file = flight::OpenFile::open(flight::list_files().at(0));
      const auto record = file->view().newest(group.rank());
      ASSERT_TRUE(record);
      EXPECT_EQ(record->algorithm, static_cast<int>(algorithm)) << "rank " << group.rank();
    });
  };
  expect_algorithm(Algorithm::ll128);
  DividingDriver driver;
  expect_algorithm(Algorithm::one_shot);
}

}  // namespace
}  // namespace gantry
