#include "machine/topology/sources.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace gantry::machine {
namespace {

namespace fs = std::filesystem;

class SysfsSourceTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  [[nodiscard]] SysfsSource source() const { return SysfsSource(folder_.path().string()); }

  testing::TemporaryFolder folder_;
};

TEST_F(SysfsSourceTest, NodesWithCpusAreRead) {
  write("devices/system/node/node0/cpulist", "0-1,4-5");
  write("devices/system/node/node0/meminfo",
        "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 3 kB");
  write("devices/system/node/node3/cpulist", "2-3,6-7");
  write("devices/system/node/node8/cpulist", "");  // memory of a GPU
  write("devices/system/node/possible", "0-8");
  const auto nodes = source().nodes();
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].memory_bytes, (Fact<std::uint64_t>{1024 * 1024, FactSource::sysfs}));
  EXPECT_EQ(nodes[1].id, 3);
  EXPECT_EQ(nodes[1].cpus.str(), "2-3,6-7");
  EXPECT_FALSE(nodes[1].memory_bytes);
}

TEST_F(SysfsSourceTest, ThreadsOfACoreAreOneCore) {
  for (const auto& [cpu, siblings] :
       {std::pair{0, "0,2"}, std::pair{1, "1,3"}, std::pair{2, "0,2"}, std::pair{3, "1,3"}}) {
    const std::string path = "devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    write(path + "thread_siblings_list", siblings);
    write(path + "physical_package_id", std::to_string(cpu % 2));
  }
  write("devices/system/cpu/cpufreq/boost", "1");
  write("devices/system/node/node0/cpulist", "0,2");
  write("devices/system/node/node1/cpulist", "1,3");
  const auto cores = source().cores(source().nodes());
  ASSERT_EQ(cores.size(), 2U);
  EXPECT_EQ(cores[1].cpus.str(), "1,3");
  EXPECT_EQ(cores[1].package, 1);
  EXPECT_EQ(cores[1].node, 1);
}

TEST_F(SysfsSourceTest, TheTightestQuotaCounts) {
  EXPECT_EQ(source().cpu_quota("/a/b"), std::nullopt);
  write("fs/cgroup/a/cpu.max", "350000 100000");
  write("fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(source().cpu_quota("/a/b"), 3.5);
  write("fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(source().cpu_quota("/a/b"), 1.0);
  EXPECT_EQ(source().cpu_quota(""), 1.0);
  write("fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  write("fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(source().cpu_quota(""), 0.5);
  write("fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(source().cpu_quota(""), 1.0);
}

TEST_F(SysfsSourceTest, AMissingTreeTellsNothing) {
  EXPECT_TRUE(source().nodes().empty());
  EXPECT_TRUE(source().cores({}).empty());
  EXPECT_TRUE(source().nics().empty());
  EXPECT_FALSE(source().device("0000:00:00.0"));
}

}  // namespace
}  // namespace gantry::machine
