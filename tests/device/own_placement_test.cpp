#include "device/own_placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <gantry/core/error.hpp>

#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;

// The topology is read once in a process: all tests have one machine, whose device 0 is near the
// first CPU and device 1 near the last one.
class OwnPlacementTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    all_ = machine::current_cpus();
    if (all_.size() < 2) GTEST_SKIP() << "needs two CPUs";
    folder_ = std::make_unique<testing::TemporaryFolder>();
    machine::Topology machine;
    for (int node = 0; node < 2; ++node) {
      const machine::CpuSet cpus{node == 0 ? first() : last()};
      machine.nodes.push_back({node, node, cpus, {}});
      machine.cores.push_back({cpus, node, node, -1});
      machine::Topology::Gpu gpu;
      gpu.node.offer(node, machine::FactSource::hwloc);
      gpu.cpus.offer(cpus, machine::FactSource::hwloc);
      machine.gpus.push_back(gpu);
    }
    machine.links.assign(2, std::vector<machine::Topology::Link>(2));
    machine.nic_paths.resize(2);
    const std::string path = (*folder_ / "machine.json").string();
    std::ofstream(path) << machine::topology_json(machine);
    setenv("GANTRY_TOPO_FILE", path.c_str(), 1);
    // As under a launcher that has bound the process before it looked at the machine.
    std::thread([] {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(static_cast<std::size_t>(first()), &mask);
      ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
      EXPECT_EQ(visible_topology().allowed_cpus->str(), std::to_string(first()));
    }).join();
  }
  static void TearDownTestSuite() {
    unsetenv("GANTRY_TOPO_FILE");
    folder_.reset();
  }
  ~OwnPlacementTest() override { unsetenv("GANTRY_BIND"); }

  static int first() { return all_.cpus().front(); }
  static int last() { return all_.cpus().back(); }

  /// What is logged when a thread on `cpus` is placed, and where it runs then.
  struct Result {
    machine::CpuSet cpus;
    std::string log;
    std::string error;
  };
  static Result place(const machine::CpuSet& cpus, const LocalRank& rank, int device) {
    Result result;
    ::testing::internal::CaptureStderr();
    std::thread([&] {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      for (const int cpu : cpus.cpus()) CPU_SET(static_cast<std::size_t>(cpu), &mask);
      ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
      try {
        place_process(rank, Device::cuda(device));
      } catch (const InvalidArgument& problem) {
        result.error = problem.what();
      }
      result.cpus = machine::current_cpus();
    }).join();
    result.log = ::testing::internal::GetCapturedStderr();
    return result;
  }

  static machine::CpuSet all_;
  static std::unique_ptr<testing::TemporaryFolder> folder_;
};

machine::CpuSet OwnPlacementTest::all_;
std::unique_ptr<testing::TemporaryFolder> OwnPlacementTest::folder_;

TEST_F(OwnPlacementTest, TheVisibleDevicesHaveTheirPlaces) {
  const machine::Topology& machine = visible_topology();
  ASSERT_EQ(machine.gpus.size(), 4U);
  EXPECT_EQ(*machine.gpus[1].node, 1);
  EXPECT_EQ(machine.gpus[1].cpus->str(), std::to_string(last()));
  EXPECT_FALSE(machine.gpus[2].node);
}

TEST_F(OwnPlacementTest, ARankFarFromItsDeviceIsWarned) {
  const LocalRank rank{.rank = 5, .local_rank = 1, .local_size = 2};
  const Result far = place(machine::CpuSet{first()}, rank, 1);
  EXPECT_THAT(far.log,
              HasSubstr("rank 5: CPUs " + std::to_string(first()) +
                        " are far from cuda:1 (NUMA node 1, "
                        "CPUs " +
                        std::to_string(last()) +
                        "); set GANTRY_BIND=auto, or start with mpirun --bind-to none or srun "
                        "--cpu-bind=none"));
  EXPECT_EQ(far.cpus, machine::CpuSet{first()});
  EXPECT_EQ(place(all_, rank, 1).log, "");
}

TEST_F(OwnPlacementTest, GantryBindReplacesAnotherLaunchersMask) {
  setenv("GANTRY_BIND", "core", 1);
  const Result core =
      place(machine::CpuSet{first()}, {.rank = 1, .local_rank = 1, .local_size = 2}, 1);
  EXPECT_EQ(core.error, "");
  EXPECT_EQ(core.cpus, machine::CpuSet{last()});
  setenv("GANTRY_BIND", "none", 1);
  const Result none =
      place(machine::CpuSet{first()}, {.rank = 1, .local_rank = 1, .local_size = 2}, 1);
  EXPECT_EQ(none.cpus, machine::CpuSet{first()});
  EXPECT_EQ(none.log, "");
}

TEST_F(OwnPlacementTest, GlaunchHasPlacedItsRanks) {
  setenv("GANTRY_BIND", "core", 1);
  const Result placed = place(machine::CpuSet{first()},
                              {.rank = 1, .local_rank = 1, .local_size = 2, .is_placed = true}, 1);
  EXPECT_EQ(placed.cpus, machine::CpuSet{first()});
  EXPECT_EQ(placed.log, "");
}

TEST_F(OwnPlacementTest, AWishThatCannotBeMetIsAnError) {
  const LocalRank rank{.rank = 2, .local_rank = 2, .local_size = 3};
  setenv("GANTRY_BIND", "socket", 1);
  EXPECT_THAT(place(all_, rank, 2).error,
              HasSubstr("GANTRY_BIND=socket: --bind: expected auto, numa, core, none"));
  setenv("GANTRY_BIND", "numa", 1);
  EXPECT_THAT(place(all_, rank, 2).error,
              HasSubstr("GANTRY_BIND=numa: --bind numa: the NUMA node of GPU 2 is unknown"));
}

}  // namespace
}  // namespace gantry
