#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/machine/topology.hpp>

#include "machine/topology/gpu_order.hpp"
#include "tests/machine/machine_file.hpp"
#include "tests/machine/machines.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::machine {
namespace {

using gantry::testing::machine_named;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::machines;
using testing::plan_text;

// Options as on glaunch's command line.
struct Asked {
  std::string gpus = "all";
  std::string order = {};
  std::string bind = "auto";
  std::optional<int> ranks = {};
  int ranks_per_gpu = 1;

  [[nodiscard]] PlanOptions options() const {
    PlanOptions result;
    result.set_gpus(gpus);
    if (!order.empty()) result.set_order(order);
    result.set_bind(bind);
    result.ranks = ranks;
    result.ranks_per_gpu = ranks_per_gpu;
    return result;
  }
  [[nodiscard]] std::string text() const {
    std::string result = "--gpus " + gpus + " --bind " + bind;
    if (!order.empty()) result += " --order " + order;
    if (ranks) result += " -n " + std::to_string(*ranks);
    if (ranks_per_gpu > 1) result += " --ranks-per-device " + std::to_string(ranks_per_gpu);
    return result;
  }
};

std::string error_of(const Topology& topology, const Asked& asked) {
  try {
    (void)plan(topology, asked.options());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

std::vector<Asked> usual_options(const Topology& topology) {
  std::vector<Asked> options{{}, {.bind = "numa"}, {.bind = "core"}};
  if (topology.gpus.size() >= 4) options.push_back({.gpus = "best:4", .order = "ring"});
  options.push_back({.gpus = "best:1", .ranks_per_gpu = 2});
  return options;
}

// The plans with the usual options, as golden files have them.
std::string usual_plans(const Topology& topology) {
  std::string text;
  for (const Asked& asked : usual_options(topology)) {
    text += asked.text() + "\n";
    const std::string error = error_of(topology, asked);
    text += error == "(nothing was thrown)" ? plan_text(plan(topology, asked.options()))
                                            : "  error: " + error + "\n";
  }
  return text;
}

std::string golden_plans(const std::string& name) {
  return testing::content_of(std::string(GANTRY_TEST_DATA_DIR) + "/" + name + ".plan");
}

TEST(PlanTest, PlansOfKnownMachinesEqualTheGoldenFiles) {
  for (const auto& [name, topology] : machines()) {
    EXPECT_EQ(usual_plans(topology), golden_plans(name)) << name;
  }
}

// hwloc, NVML and sysfs, as each of these machines would feed them, lead to the same plans.
TEST(PlanTest, PlansOfDiscoveredMachinesEqualTheGoldenFiles) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GANTRY_TEST_DATA_DIR "/machines")) {
    const std::string name = entry.path().stem().string();
    names.insert(name);
    const testing::MachineFile file(entry.path().string());
    const Topology found = file.discover(GANTRY_TEST_FAKE_NVML);
    // hwloc knows no devices of a synthetic machine: sysfs tells their places.
    std::string plans = usual_plans(found);
    for (std::size_t at = 0; (at = plans.find(" by sysfs)", at)) != std::string::npos;) {
      plans.replace(at, 10, " by hwloc)");
    }
    EXPECT_EQ(plans, golden_plans(name)) << name << "\n" << topology_json(found);
    const Topology written = machine_named(name);
    EXPECT_EQ(found.nodes, written.nodes) << name;
    EXPECT_EQ(found.cores, written.cores) << name;
    ASSERT_EQ(found.gpus.size(), written.gpus.size()) << name;
    for (std::size_t i = 0; i < found.gpus.size(); ++i) {
      EXPECT_EQ(found.gpus[i].uuid, written.gpus[i].uuid) << name;
      EXPECT_EQ(found.gpus[i].pci_chain.value, written.gpus[i].pci_chain.value) << name;
      for (std::size_t j = 0; j < found.gpus.size(); ++j) {
        EXPECT_EQ(found.links[i][j].nvlinks.value.value_or(0),
                  written.links[i][j].nvlinks.value.value_or(0))
            << name << " " << i << " " << j;
        EXPECT_EQ(found.links[i][j].path.value, written.links[i][j].path.value)
            << name << " " << i << " " << j;
      }
    }
  }
  for (const auto& [name, topology] : machines()) {
    // Its limits come from a control group: see TopologyTest.AContainerHasPartOfTheMachine.
    EXPECT_TRUE(names.contains(name) || name == "container") << name;
  }
}

TEST(PlanTest, EveryPlanIsValid) {
  for (const auto& [name, topology] : machines()) {
    for (const char* const bind : {"auto", "numa", "core", "none"}) {
      for (const int per_gpu : {1, 2, 3}) {
        const Asked asked{.bind = bind, .ranks_per_gpu = per_gpu};
        if (error_of(topology, asked) != "(nothing was thrown)") continue;
        const Plan result = plan(topology, asked.options());
        SCOPED_TRACE(name + ": " + asked.text() + "\n" + plan_text(result));
        EXPECT_EQ(result.ranks.size(), topology.gpus.size() * static_cast<std::size_t>(per_gpu));
        std::set<int> gpus;
        std::vector<int> taken;
        for (const RankPlacement& rank : result.ranks) {
          gpus.insert(*rank.gpu);
          EXPECT_GE(rank.threads, 1);
          if (!rank.cpus) continue;
          EXPECT_FALSE(rank.cpus->empty());
          EXPECT_TRUE(rank.cpus->is_subset_of(*topology.allowed_cpus));
          EXPECT_FALSE(rank.reason.empty());
          taken.insert(taken.end(), rank.cpus->cpus().begin(), rank.cpus->cpus().end());
        }
        EXPECT_EQ(gpus.size(), topology.gpus.size());
        if (std::string(bind) != "core") continue;
        // No CPU twice, and no core divided.
        const std::size_t count = taken.size();
        EXPECT_EQ(CpuSet(taken).size(), count);
        for (const RankPlacement& rank : result.ranks) {
          for (const Topology::Core& core : topology.cores) {
            const CpuSet part = core.cpus & *topology.allowed_cpus;
            EXPECT_TRUE(part.is_subset_of(*rank.cpus) || !part.intersects(*rank.cpus));
          }
        }
      }
    }
  }
}

// Bus ids of a plan's GPUs: they do not depend on the order in which a source lists them.
std::vector<std::string> bus_ids(const Topology& topology, const Plan& result) {
  std::vector<std::string> ids;
  for (const RankPlacement& rank : result.ranks) {
    const Topology::Gpu& gpu = topology.gpus[static_cast<std::size_t>(*rank.gpu)];
    ids.push_back(gpu.bus_id + " " + gpu.uuid + " " + (rank.cpus ? rank.cpus->str() : ""));
  }
  return ids;
}

TEST(PlanTest, PlansDoNotDependOnTheOrderOfTheGpus) {
  std::mt19937 random(7);
  for (const auto& [name, topology] : machines()) {
    for (int round = 0; round < 5; ++round) {
      std::vector<int> order(topology.gpus.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      const Topology shuffled = keep_gpus(topology, order);
      for (const Asked& asked : usual_options(topology)) {
        if (error_of(topology, asked) != "(nothing was thrown)") continue;
        EXPECT_EQ(bus_ids(topology, plan(topology, asked.options())),
                  bus_ids(shuffled, plan(shuffled, asked.options())))
            << name << ": " << asked.text();
      }
    }
  }
}

TEST(PlanTest, MoreCpusNeverMakeAPlanInvalid) {
  for (const auto& [name, topology] : machines()) {
    Topology more = topology;
    Topology less = topology;
    const std::vector<int>& cpus = topology.allowed_cpus->cpus();
    less.allowed_cpus.value =
        CpuSet({cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(cpus.size() / 2)});
    for (const Asked& asked : usual_options(topology)) {
      if (error_of(less, asked) != "(nothing was thrown)") continue;
      EXPECT_EQ(error_of(more, asked), "(nothing was thrown)") << name << ": " << asked.text();
    }
  }
}

TEST(PlanTest, ARingOfTheCubeMeshHasNoPathThroughTheHost) {
  const Topology topology = machine_named("dgx1v");
  const Plan result = plan(topology, Asked{.order = "ring"}.options());
  ASSERT_EQ(result.gpus.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    const auto a = static_cast<std::size_t>(result.gpus[i]);
    const auto b = static_cast<std::size_t>(result.gpus[(i + 1) % 8]);
    EXPECT_GE(topology.links[a][b].nvlinks.value.value_or(0), 1) << a << " " << b;
  }
  EXPECT_EQ(result.gpus.front(), 0);
}

TEST(PlanTest, ARingOfFewerRanksHasTheFirstGpus) {
  const Topology topology = machine_named("dgx1v");
  for (int ranks = 2; ranks < 8; ++ranks) {
    const Plan result = plan(topology, Asked{.order = "ring", .ranks = ranks}.options());
    std::vector<int> first(result.gpus.begin(), result.gpus.begin() + ranks);
    std::sort(first.begin(), first.end());
    std::vector<int> expected(static_cast<std::size_t>(ranks));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(first, expected);
  }
}

TEST(PlanTest, TheBestFourOfTheCubeMeshAreOneClique) {
  EXPECT_THAT(plan(machine_named("dgx1v"), Asked{.gpus = "best:4"}.options()).gpus,
              ElementsAre(0, 1, 2, 3));
  // Two that share two links.
  EXPECT_THAT(plan(machine_named("dgx1v"), Asked{.gpus = "best:2"}.options()).gpus,
              ElementsAre(0, 3));
}

TEST(PlanTest, TheBestOfManyGpusAreFoundToo) {
  // 32 GPUs, of which the last four are a clique of NVLinks.
  Topology topology = testing::host_of({2, 1, 16, 1});
  for (int i = 0; i < 32; ++i) {
    Topology::Gpu gpu;
    gpu.bus_id = "0000:" + std::to_string(10 + i) + ":00.0";
    topology.gpus.push_back(gpu);
  }
  topology.links.assign(32, std::vector<Topology::Link>(32));
  topology.nic_paths.resize(32);
  for (std::size_t i = 28; i < 32; ++i) {
    for (std::size_t j = 28; j < 32; ++j) topology.links[i][j].nvlinks.offer(4, FactSource::nvml);
  }
  EXPECT_THAT(plan(topology, Asked{.gpus = "best:4"}.options()).gpus, ElementsAre(28, 29, 30, 31));
}

TEST(PlanTest, TheWorstConnectionDecidesBeforeTheSum) {
  Topology topology = machine_named("reversed_numa");
  const auto connect = [&](std::size_t a, std::size_t b, int links) {
    topology.links[a][b].nvlinks.value = topology.links[b][a].nvlinks.value = links;
  };
  // GPU 0 has many links to GPU 1 and none to the others, which have few to each other.
  connect(0, 1, 8);
  connect(0, 2, 0);
  connect(0, 3, 0);
  connect(1, 2, 2);
  connect(1, 3, 2);
  connect(2, 3, 2);
  EXPECT_THAT(plan(topology, Asked{.gpus = "best:3"}.options()).gpus, ElementsAre(1, 2, 3));
}

TEST(PlanTest, ARingIsTheBestOfAllRings) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const std::size_t count = 4 + static_cast<std::size_t>(round) % 3;
    Topology topology = testing::host_of({1, 1, 8, 1});
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    for (const int gpu : order) {
      topology.gpus.emplace_back().bus_id = "0000:0" + std::to_string(gpu) + ":00.0";
    }
    topology.links.assign(count, std::vector<Topology::Link>(count));
    topology.nic_paths.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        topology.links[i][j].nvlinks.value = static_cast<int>(random() % 4);
        topology.links[j][i] = topology.links[i][j];
      }
    }
    // The least connection, then all of them.
    const auto quality_of = [&](const std::vector<int>& ring) {
      std::pair<int, int> result{std::numeric_limits<int>::max(), 0};
      for (std::size_t i = 0; i < count; ++i) {
        const auto from = static_cast<std::size_t>(ring[i]);
        const auto to = static_cast<std::size_t>(ring[(i + 1) % count]);
        const int link = link_quality(topology.links[from][to]);
        result = {std::min(result.first, link), result.second + link};
      }
      return result;
    };
    const std::vector<int> ring = plan(topology, Asked{.order = "ring"}.options()).gpus;
    EXPECT_EQ(ring.front(), 0);
    EXPECT_EQ(std::set<int>(ring.begin(), ring.end()).size(), count);
    std::pair<int, int> best;
    do best = std::max(best, quality_of(order));
    while (std::next_permutation(order.begin() + 1, order.end()));
    EXPECT_EQ(quality_of(ring), best) << "round " << round;
  }
}

TEST(PlanTest, AccessToAPeerCountsMoreThanTheWay) {
  Topology topology = machine_named("four_sockets");
  const auto connect = [&](std::size_t a, std::size_t b, PciPath path, std::optional<bool> access) {
    for (Topology::Link* const link : {&topology.links[a][b], &topology.links[b][a]}) {
      link->path.value = path;
      link->peer_access.value = access;
    }
  };
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < i; ++j) connect(i, j, PciPath::pix, false);
  }
  connect(1, 3, PciPath::system, true);
  EXPECT_THAT(plan(topology, Asked{.gpus = "best:2"}.options()).gpus, ElementsAre(1, 3));
  connect(0, 2, PciPath::node, std::nullopt);
  EXPECT_THAT(plan(topology, Asked{.gpus = "best:2"}.options()).gpus, ElementsAre(0, 2))
      << "access that nobody denies";
}

TEST(PlanTest, RanksTakeTurnsOnTheirNearestInterfaces) {
  // Interfaces of the 4 ranks, each of which has these ways to all of them.
  const auto chosen = [](const std::vector<std::optional<PciPath>>& ways) {
    Topology topology = machine_named("four_sockets");
    topology.nics.resize(ways.size());
    for (auto& row : topology.nic_paths) {
      row.clear();
      for (const auto& way : ways) row.push_back({way, FactSource::hwloc});
    }
    std::vector<int> nics;
    for (const RankPlacement& rank : plan(topology).ranks) nics.push_back(rank.nic.value_or(-1));
    return nics;
  };
  const std::optional<PciPath> unknown;
  EXPECT_THAT(chosen({PciPath::node, PciPath::node}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(chosen({PciPath::pix, PciPath::pix, PciPath::pix}), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(chosen({PciPath::system, unknown, PciPath::node, PciPath::node}),
              ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(chosen({PciPath::pxb, PciPath::pix}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(chosen({unknown, PciPath::system}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(chosen({unknown}), ElementsAre(-1, -1, -1, -1));
}

TEST(PlanTest, RanksOfUnknownPlaceTakeTheCoresThatOthersLeave) {
  Topology topology = machine_named("smt_off");
  topology.gpus[0].node = {};
  topology.gpus[0].cpus = {};
  const Plan result = plan(topology, Asked{.bind = "core"}.options());
  EXPECT_EQ(result.ranks[1].cpus->str(), "0,2,4,6,8,10,12,14");
  EXPECT_EQ(result.ranks[0].cpus->str(), "1,3,5,7,9,11,13,15");
}

TEST(PlanTest, IdleLeavesBusyGpusOut) {
  Topology topology = machine_named("hgx_h100");
  topology.gpus[0].processes.value = 1;
  topology.gpus[2].used_memory_bytes.value = *topology.gpus[2].memory_bytes / 2;
  EXPECT_THAT(plan(topology, Asked{.gpus = "idle:3"}.options()).gpus, ElementsAre(4, 5, 6));
  EXPECT_EQ(error_of(topology, {.gpus = "idle:7"}), "--gpus idle:7: only 6 of 8 GPUs are idle");
  topology.gpus[1].processes = {};
  EXPECT_THAT(error_of(topology, {.gpus = "idle:2"}),
              HasSubstr("are unknown; use --gpus best:N or a list"));
}

TEST(PlanTest, AGpuIsIdleUpToATwentiethOfItsMemory) {
  Topology topology = machine_named("hgx_h100");
  for (Topology::Gpu& gpu : topology.gpus) gpu.used_memory_bytes.value = *gpu.memory_bytes / 20 + 1;
  topology.gpus[5].used_memory_bytes.value = *topology.gpus[5].memory_bytes / 20;
  EXPECT_THAT(plan(topology, Asked{.gpus = "idle:1"}.options()).gpus, ElementsAre(5));
  EXPECT_EQ(error_of(topology, {.gpus = "idle:2"}), "--gpus idle:2: only 1 of 8 GPU is idle");
}

TEST(PlanTest, AListNamesGpusInItsOrder) {
  const Topology topology = machine_named("hgx_h100");
  EXPECT_THAT(plan(topology, Asked{.gpus = "5,GPU-3,0000:1B:00.0,43:00.0"}.options()).gpus,
              ElementsAre(5, 3, 0, 1));
  EXPECT_THAT(plan(topology, Asked{.gpus = "5,3", .order = "pci"}.options()).gpus,
              ElementsAre(3, 5));
  EXPECT_EQ(error_of(topology, {.gpus = "0,8"}),
            "--gpus: '8' is no visible GPU; GPUs 0 to 7 are visible");
  EXPECT_EQ(error_of(topology, {.gpus = "GPU-f"}),
            "--gpus: 'GPU-f' is no visible GPU; GPUs 0 to 7 are visible");
  EXPECT_EQ(error_of(topology, {.gpus = "GPU-"}),
            "--gpus: 'GPU-' names 8 GPUs; GPUs 0 to 7 are visible");
  EXPECT_EQ(error_of(topology, {.gpus = "1,0000:43:00.0"}),
            "--gpus: '0000:43:00.0' names GPU 1 a second time");
  EXPECT_EQ(error_of(topology, {.gpus = "best:9"}), "--gpus best:9: only 8 of 8 GPUs are visible");
}

TEST(PlanTest, AGivenOrderStays) {
  const std::vector<int> order{3, 1, 2};
  const Topology topology = keep_gpus(machine_named("hgx_h100"), order);
  PlanOptions options;
  EXPECT_THAT(plan(topology, options).gpus, ElementsAre(1, 2, 0));
  options.is_order_given = true;
  EXPECT_THAT(plan(topology, options).gpus, ElementsAre(0, 1, 2));
}

TEST(PlanTest, OptionsThatCannotBeMetAreErrors) {
  const Topology topology = machine_named("hgx_h100");
  EXPECT_EQ(error_of(topology, {.gpus = "best:2", .ranks = 3}),
            "plan: expected at most 2 ranks on 2 GPUs, but got 3");
  EXPECT_EQ(error_of(topology, {.bind = "0-3:4-7"}),
            "--bind: expected one CPU list or one for each of 8 ranks, but got 2");
  EXPECT_EQ(error_of(topology, {.bind = "222-225"}),
            "--bind: CPUs 224-225 of rank 0 may not be used here; those that may are 0-223");
  EXPECT_EQ(error_of(machine_named("unknown_places"), {.bind = "numa"}),
            "--bind numa: the NUMA node of GPU 0 is unknown; use --topo-file, --bind core or "
            "--bind none");
  EXPECT_EQ(error_of(machine_named("container"), {.bind = "numa"}),
            "--bind numa: no CPU near GPU 1 (NUMA node 1 by hwloc) may be used here; use --bind "
            "core or --bind none");
  EXPECT_EQ(error_of(machine_named("four_sockets"), {.bind = "core", .ranks_per_gpu = 5}),
            "--bind core: 5 ranks cannot have cores of their own among the 4 cores of CPUs "
            "0,4,8,12,16,20,24,28; use --bind numa or fewer ranks");
  PlanOptions none;
  none.cpu_only = true;
  EXPECT_THROW((void)plan(topology, none), InvalidArgument);
  none.ranks = 2;
  none.set_gpus("0");
  EXPECT_THROW((void)plan(topology, none), InvalidArgument);
}

TEST(PlanTest, RanksWithoutGpusCanBeSpread) {
  PlanOptions options;
  options.cpu_only = true;
  options.ranks = 4;
  options.set_bind("numa");
  const Plan spread = plan(machine_named("hgx_h100"), options);
  EXPECT_EQ(spread.ranks[1].memory_node, 0);
  EXPECT_EQ(spread.ranks[2].memory_node, 1);
  options.set_bind("core");
  const Plan cores = plan(machine_named("hgx_h100"), options);
  EXPECT_EQ(cores.ranks[0].cpus->str(), "0-27,112-139");
  EXPECT_EQ(cores.ranks[3].cpus->str(), "84-111,196-223");
  options.set_bind("auto");
  EXPECT_EQ(plan(machine_named("hgx_h100"), options).ranks[0].cpus, std::nullopt);
}

TEST(PlanTest, AQuotaBoundsTheThreads) {
  Topology topology = machine_named("hgx_h100");
  EXPECT_EQ(plan(topology).ranks[0].threads, 14);
  topology.cpu_quota.value = 20.5;
  EXPECT_EQ(plan(topology).ranks[0].threads, 2);
  topology.cpu_quota.value = 1;
  EXPECT_EQ(plan(topology).ranks[0].threads, 1);
}

TEST(PlanTest, MalformedOptionsAreErrors) {
  PlanOptions options;
  const auto error = [&](auto set) -> std::string {
    try {
      set();
    } catch (const InvalidArgument& problem) {
      return problem.what();
    }
    return "(nothing was thrown)";
  };
  EXPECT_EQ(error([&] { options.set_gpus("best:0"); }),
            "--gpus best:N: expected a whole number from 1 to 4096, but got '0'");
  EXPECT_THAT(error([&] { options.set_gpus("0,,1"); }), HasSubstr("but got '0,,1'"));
  EXPECT_THAT(error([&] { options.set_gpus(""); }), HasSubstr("--gpus: expected all, best:N"));
  EXPECT_EQ(error([&] { options.set_order("best"); }),
            "--order: expected pci, ring or given, but got 'best'");
  EXPECT_EQ(error([&] { options.set_bind("socket"); }),
            "--bind: expected auto, numa, core, none or CPUs of each rank such as 0-3:4-7, but got "
            "'socket'");
  EXPECT_THAT(error([&] { options.set_bind("0-3:"); }), HasSubstr("but got '0-3:'"));
  EXPECT_EQ(options.gpus, GpuChoice::all);
  EXPECT_EQ(options.bind, BindMode::automatic);
}

TEST(PlanTest, WarnsOfRanksFarFromTheirGpu) {
  const Topology topology = machine_named("hgx_h100");
  EXPECT_EQ(binding_warning(topology, 0, CpuSet::parse("0-3")), "");
  EXPECT_EQ(binding_warning(topology, 0, CpuSet::parse("0-223")), "");
  EXPECT_EQ(binding_warning(topology, 5, CpuSet::parse("0-3")),
            "CPUs 0-3 are far from cuda:5 (NUMA node 1, CPUs 56-111,168-223)");
  EXPECT_THAT(binding_warning(topology, 0, CpuSet::parse("0,112")), HasSubstr("are one core"));
  EXPECT_EQ(binding_warning(machine_named("unknown_places"), 0, CpuSet::parse("0-1")), "");
}

}  // namespace
}  // namespace gantry::machine
