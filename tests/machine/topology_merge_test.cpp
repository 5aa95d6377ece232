// Facts of a topology file beside facts of the machine.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "machine/topology/topology_file.hpp"
#include "tests/machine/machines.hpp"

namespace gantry::machine {
namespace {

using testing::machine_named;

// Two GPUs, of which the file knows other facts than the machine.
struct Sides {
  Topology machine = machine_named("flat_vm");
  Topology file = machine;

  Sides() {
    for (Topology* const side : {&machine, &file}) {
      const bool is_file = side == &file;
      const FactSource source = is_file ? FactSource::nccl_xml : FactSource::hwloc;
      side->nics = {{"eth0", "0000:00:09.0", {}, {}}};
      for (std::size_t i = 0; i < 2; ++i) {
        side->gpus[i].max_pcie_width = {16, source};                          // equal
        side->gpus[i].node = {is_file ? 1 : 0, source};                       // contradictory
        (is_file ? side->gpus[i].pcie_width : side->gpus[i].pcie_generation)  // of one side
            .offer(4, source);
        side->links[i][1 - i].nvlinks = {is_file ? 2 : 18, source};
        side->links[i][1 - i].peer_access = {!is_file, source};
        side->nic_paths[i] = {{is_file ? PciPath::pix : PciPath::system, source}};
      }
    }
  }
  Topology merged(Precedence precedence, bool by_position = false) const {
    Topology result = machine;
    merge(file, precedence, by_position, result);
    return result;
  }
};

TEST(TopologyMergeTest, FactsOfTheMachineStayWhereAFileFillsGaps) {
  const Topology merged = Sides().merged(Precedence::machine);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(merged.gpus[i].max_pcie_width, (Fact<int>{16, FactSource::hwloc}));
    EXPECT_EQ(merged.gpus[i].node, (Fact<int>{0, FactSource::hwloc}));
    EXPECT_EQ(merged.gpus[i].pcie_generation, (Fact<int>{4, FactSource::hwloc}));
    EXPECT_EQ(merged.gpus[i].pcie_width, (Fact<int>{4, FactSource::nccl_xml}));
    const Topology::Link& link = merged.links[i][1 - i];
    EXPECT_EQ(link.nvlinks, (Fact<int>{18, FactSource::hwloc}));
    EXPECT_EQ(link.peer_access, (Fact<bool>{true, FactSource::hwloc}));
    EXPECT_EQ(merged.nic_paths[i][0], (Fact<PciPath>{PciPath::system, FactSource::hwloc}));
  }
}

TEST(TopologyMergeTest, FactsOfAFileReplaceTheMachines) {
  const Topology merged = Sides().merged(Precedence::file);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(merged.gpus[i].max_pcie_width, (Fact<int>{16, FactSource::hwloc})) << "it agrees";
    EXPECT_EQ(merged.gpus[i].node, (Fact<int>{1, FactSource::file}));
    EXPECT_EQ(merged.gpus[i].pcie_generation, (Fact<int>{4, FactSource::hwloc})) << "it is silent";
    EXPECT_EQ(merged.gpus[i].pcie_width, (Fact<int>{4, FactSource::file}));
    const Topology::Link& link = merged.links[i][1 - i];
    EXPECT_EQ(link.nvlinks, (Fact<int>{2, FactSource::file}));
    EXPECT_EQ(link.peer_access, (Fact<bool>{false, FactSource::file}));
    EXPECT_EQ(merged.nic_paths[i][0], (Fact<PciPath>{PciPath::pix, FactSource::file}));
  }
}

TEST(TopologyMergeTest, PartsOfTheMachineAreReplacedByAFileThatComesFirst) {
  Sides sides;
  const Topology other = machine_named("gb200");
  sides.file.nodes = other.nodes;
  sides.file.cores = other.cores;
  sides.file.nics[0].name = "mlx5_0";
  sides.file.cpu_quota = {2.5, FactSource::file};
  const Topology kept = sides.merged(Precedence::machine);
  EXPECT_EQ(kept.nodes, sides.machine.nodes);
  EXPECT_EQ(kept.cores, sides.machine.cores);
  EXPECT_EQ(kept.nics, sides.machine.nics);
  EXPECT_FALSE(kept.cpu_quota);
  const Topology replaced = sides.merged(Precedence::file);
  EXPECT_EQ(replaced.nodes, other.nodes);
  EXPECT_EQ(replaced.cores, other.cores);
  EXPECT_EQ(replaced.nics, sides.file.nics);
  EXPECT_EQ(*replaced.cpu_quota, 2.5);

  sides.machine.nodes.clear();
  sides.machine.cores.clear();
  sides.machine.nics.clear();
  const Topology filled = sides.merged(Precedence::machine);
  EXPECT_EQ(filled.nodes, other.nodes);
  EXPECT_EQ(filled.cores, other.cores);
  EXPECT_EQ(filled.nics, sides.file.nics);

  Sides silent;
  silent.file.nodes.clear();
  silent.file.cores.clear();
  silent.file.nics.clear();
  const Topology alone = silent.merged(Precedence::file);
  EXPECT_EQ(alone.nodes, silent.machine.nodes);
  EXPECT_EQ(alone.cores, silent.machine.cores);
  EXPECT_EQ(alone.nics, silent.machine.nics);
}

TEST(TopologyMergeTest, GpusAreFoundByUuidThenByBusIdOrByNumberAlone) {
  Sides sides;
  sides.file.gpus[0].node.value = 5;
  std::swap(sides.file.gpus[0].uuid, sides.file.gpus[1].uuid);
  EXPECT_EQ(*sides.merged(Precedence::file).gpus[1].node, 5) << "by UUID";
  sides.file.gpus[0].uuid = sides.file.gpus[1].uuid = "";
  EXPECT_EQ(*sides.merged(Precedence::file).gpus[0].node, 5) << "by bus id";
  sides.file.gpus[0].bus_id = sides.file.gpus[1].bus_id = "0000:77:00.0";
  EXPECT_EQ(*sides.merged(Precedence::file).gpus[0].node, 0) << "not found";
  EXPECT_EQ(*sides.merged(Precedence::file, true).gpus[0].node, 5) << "by number";
  sides.file.gpus.resize(1);
  EXPECT_EQ(*sides.merged(Precedence::file, true).gpus[1].node, 0) << "the file has fewer";
}

}  // namespace
}  // namespace gantry::machine
