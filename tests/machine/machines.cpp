#include "tests/machine/machines.hpp"

#include <sstream>
#include <stdexcept>

#include "machine/topology/pci_facts.hpp"
#include "machine/topology/topology_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {
namespace {

constexpr machine::FactSource kHwloc = machine::FactSource::hwloc;
constexpr machine::FactSource kNvml = machine::FactSource::nvml;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

machine::Topology::Gpu& add_gpu(machine::Topology& machine, const std::string& name,
                                const std::string& bus_id, int node,
                                std::vector<std::string> chain) {
  machine::Topology::Gpu gpu;
  gpu.name = name;
  gpu.uuid = "GPU-" + std::to_string(machine.gpus.size()) + "0000000-0000-4000-8000-000000000000";
  gpu.bus_id = bus_id;
  if (node >= 0) gpu.node.offer(node, kHwloc);
  gpu.pci_chain.offer(std::move(chain), kHwloc);
  gpu.memory_bytes.offer((name == "Tesla V100" ? 32 : 80) * kGiB, kNvml);
  gpu.used_memory_bytes.offer(kGiB / 2, kNvml);
  gpu.processes.offer(0, kNvml);
  machine.gpus.push_back(std::move(gpu));
  return machine.gpus.back();
}

void add_nic(machine::Topology& machine, const std::string& name, const std::string& bus_id,
             int node, std::vector<std::string> chain) {
  machine::Topology::Nic nic{name, bus_id, {}, {}};
  nic.node.offer(node, kHwloc);
  nic.pci_chain.offer(std::move(chain), kHwloc);
  machine.nics.push_back(std::move(nic));
}

void connect_by_switches(machine::Topology& machine, int links) {
  for (machine::Topology::Gpu& gpu : machine.gpus) {
    gpu.nvlinks.offer({{{machine::Topology::LinkEnd::nvswitch, "", links}}}, kNvml);
  }
}

// `counts[i][j]`: NVLinks between GPU i and GPU j.
void connect_directly(machine::Topology& machine, const std::vector<std::vector<int>>& counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::vector<machine::Topology::NvLinks> links;
    for (std::size_t j = 0; j < counts.size(); ++j) {
      if (counts[i][j] == 0) continue;
      links.push_back({machine::Topology::LinkEnd::gpu, machine.gpus[j].bus_id, counts[i][j]});
    }
    machine.gpus[i].nvlinks.offer(std::move(links), kNvml);
  }
}

machine::Topology finished(machine::Topology machine) {
  machine::complete_localities(machine);
  machine::derive_links(machine);
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    for (std::size_t j = 0; j < machine.gpus.size(); ++j) {
      if (i != j) machine.links[i][j].peer_access.offer(true, kNvml);
    }
  }
  return machine;
}

// Each GPU below a switch of its own, with a network interface beside it.
machine::Topology hgx(const std::string& name, int cores_per_package) {
  machine::Topology machine = host_of({2, 1, cores_per_package, 2, CpuNumbering::linear});
  const char* const buses[] = {"1b", "43", "52", "61", "9d", "c3", "d1", "df"};
  for (int i = 0; i < 8; ++i) {
    const std::string bus = buses[i];
    const std::vector<std::string> chain{"pci0000:" + bus, "0000:" + bus + ":01.0",
                                         "0000:" + bus + ":02.0"};
    add_gpu(machine, name, "0000:" + bus + ":00.0", i / 4, chain);
    add_nic(machine, "mlx5_" + std::to_string(i), "0000:" + bus + ":10.0", i / 4, chain);
  }
  connect_by_switches(machine, 18);
  return finished(std::move(machine));
}

machine::Topology dgx1v() {
  machine::Topology machine = host_of({2, 1, 20, 2, CpuNumbering::linear});
  const char* const buses[] = {"06", "07", "0a", "0b", "85", "86", "89", "8a"};
  for (int i = 0; i < 8; ++i) {
    const std::string root = i < 4 ? "00" : "80";
    const std::string port = std::to_string(i / 2);
    add_gpu(machine, "Tesla V100", std::string("0000:") + buses[i] + ":00.0", i / 4,
            {"pci0000:" + root, "0000:" + root + ":0" + port + ".0",
             "0000:" + std::string(buses[i / 2 * 2]) + ":10.0"});
  }
  for (int i = 0; i < 4; ++i) {
    const std::string bus = buses[2 * i];
    add_nic(machine, "mlx5_" + std::to_string(i), "0000:" + bus + ":1f.0", i / 2,
            machine.gpus[static_cast<std::size_t>(2 * i)].pci_chain.value.value());
  }
  connect_directly(machine, {{0, 1, 1, 2, 2, 0, 0, 0},
                             {1, 0, 2, 1, 0, 2, 0, 0},
                             {1, 2, 0, 2, 0, 0, 1, 0},
                             {2, 1, 2, 0, 0, 0, 0, 1},
                             {2, 0, 0, 0, 0, 1, 1, 2},
                             {0, 2, 0, 0, 1, 0, 2, 1},
                             {0, 0, 1, 0, 1, 2, 0, 2},
                             {0, 0, 0, 1, 2, 1, 2, 0}});
  return finished(std::move(machine));
}

machine::Topology dgx2() {
  machine::Topology machine = host_of({2, 1, 24, 2, CpuNumbering::linear});
  for (int i = 0; i < 16; ++i) {
    std::ostringstream bus;
    bus << std::hex << 0x34 + 2 * i + (i < 8 ? 0 : 0x60);
    add_gpu(machine, "Tesla V100", "0000:" + bus.str() + ":00.0", i / 8,
            {"pci0000:" + bus.str(), "0000:" + bus.str() + ":01.0"});
  }
  connect_by_switches(machine, 6);
  return finished(std::move(machine));
}

machine::Topology gb200() {
  machine::Topology machine = host_of({2, 1, 72, 1, CpuNumbering::linear});
  const char* const buses[] = {"0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0"};
  for (int i = 0; i < 4; ++i) {
    const std::string bus = buses[i];
    add_gpu(machine, "NVIDIA GB200", bus, i / 2, {"pci" + bus.substr(0, 4) + ":00"});
  }
  connect_by_switches(machine, 18);
  return finished(std::move(machine));
}

// GPU i is near node 3-i.
machine::Topology reversed_numa() {
  machine::Topology machine = host_of({1, 4, 16, 1, CpuNumbering::linear});
  const char* const buses[] = {"07", "46", "85", "c7"};
  for (int i = 0; i < 4; ++i) {
    const std::string bus = buses[i];
    add_gpu(machine, "NVIDIA A100", "0000:" + bus + ":00.0", 3 - i, {"pci0000:" + bus});
  }
  connect_directly(machine, {{0, 4, 4, 4}, {4, 0, 4, 4}, {4, 4, 0, 4}, {4, 4, 4, 0}});
  return finished(std::move(machine));
}

// Two GPUs at every second node of eight.
machine::Topology amd_nodes() {
  machine::Topology machine = host_of({2, 4, 16, 1, CpuNumbering::linear});
  const char* const buses[] = {"07", "0b", "48", "4c", "88", "8b", "c8", "cb"};
  const int nodes[] = {3, 3, 1, 1, 7, 7, 5, 5};
  for (int i = 0; i < 8; ++i) {
    const std::string bus = buses[i];
    add_gpu(machine, "NVIDIA A100", "0000:" + bus + ":00.0", nodes[i],
            {"pci0000:" + std::string(buses[i / 2 * 2]), "0000:" + bus + ":01.0"});
  }
  connect_by_switches(machine, 12);
  return finished(std::move(machine));
}

machine::Topology four_sockets() {
  machine::Topology machine = host_of({4, 1, 4, 2, CpuNumbering::interleaved});
  for (int i = 0; i < 4; ++i) {
    const std::string bus = std::to_string(2 * i) + "1";
    add_gpu(machine, "NVIDIA L4", "0000:" + bus + ":00.0", i, {"pci0000:" + bus});
  }
  return finished(std::move(machine));
}

machine::Topology smt_off() {
  machine::Topology machine = host_of({2, 1, 8, 1, CpuNumbering::interleaved});
  add_gpu(machine, "NVIDIA L40", "0000:17:00.0", 0, {"pci0000:16", "0000:16:01.0"});
  add_gpu(machine, "NVIDIA L40", "0000:18:00.0", 0, {"pci0000:16", "0000:16:02.0"});
  return finished(std::move(machine));
}

// No NUMA information, one host bridge.
machine::Topology flat_vm() {
  machine::Topology machine = host_of({1, 1, 8, 1, CpuNumbering::linear});
  for (int i = 0; i < 2; ++i) {
    add_gpu(machine, "NVIDIA H200", "0000:00:0" + std::to_string(6 + i) + ".0", -1, {"pci0000:00"});
  }
  connect_by_switches(machine, 18);
  return finished(std::move(machine));
}

// The same with two NUMA nodes, of which nobody knows where the GPUs are.
machine::Topology unknown_places() {
  machine::Topology machine = host_of({2, 1, 8, 1, CpuNumbering::linear});
  for (int i = 0; i < 4; ++i) {
    add_gpu(machine, "NVIDIA H100", "0000:00:0" + std::to_string(4 + i) + ".0", -1, {"pci0000:00"});
  }
  return finished(std::move(machine));
}

machine::Topology mig() {
  machine::Topology machine = host_of({2, 1, 16, 2, CpuNumbering::linear});
  for (int i = 0; i < 3; ++i) {
    add_gpu(machine, "NVIDIA A100", "0000:17:00.0", 0, {"pci0000:16"}).uuid =
        "MIG-" + std::to_string(i) + "0000000-0000-4000-8000-000000000000";
  }
  add_gpu(machine, "NVIDIA A100", "0000:ca:00.0", 1, {"pci0000:c9"});
  return finished(std::move(machine));
}

// A quarter of the CPUs and two GPUs, one of which is far from them.
machine::Topology container() {
  machine::Topology machine = hgx("NVIDIA H100", 56);
  machine.allowed_cpus = {machine::CpuSet::parse("0-27,112-139"), machine::FactSource::system};
  machine.cpu_quota = {40.5, machine::FactSource::sysfs};
  const int gpus[] = {1, 6};
  return machine::keep_gpus(machine, gpus);
}

}  // namespace

machine::Topology host_of(const Processors& processors) {
  machine::Topology machine;
  machine.host = "node";
  const int nodes = processors.packages * processors.nodes_per_package;
  const int cores = nodes * processors.cores_per_node;
  machine::CpuSet all;
  for (int node = 0; node < nodes; ++node) {
    machine::Topology::NumaNode entry;
    entry.id = node;
    entry.package = node / processors.nodes_per_package;
    entry.memory_bytes.offer(256 * kGiB, kHwloc);
    for (int i = 0; i < processors.cores_per_node; ++i) {
      const int core = processors.numbering == CpuNumbering::linear
                           ? node * processors.cores_per_node + i
                           : i * nodes + node;
      std::vector<int> cpus;
      for (int thread = 0; thread < processors.threads_per_core; ++thread) {
        cpus.push_back(core + thread * cores);
      }
      machine.cores.push_back({machine::CpuSet(cpus), entry.package, node, node});
      entry.cpus = entry.cpus | machine::CpuSet(cpus);
    }
    all = all | entry.cpus;
    machine.nodes.push_back(std::move(entry));
  }
  machine.allowed_cpus.offer(all, machine::FactSource::system);
  return machine;
}

std::vector<std::pair<std::string, machine::Topology>> machines() {
  return {{"hgx_h100", hgx("NVIDIA H100 80GB HBM3", 56)},
          {"hgx_h200", hgx("NVIDIA H200", 48)},
          {"dgx1v", dgx1v()},
          {"dgx2", dgx2()},
          {"gb200", gb200()},
          {"reversed_numa", reversed_numa()},
          {"amd_nodes", amd_nodes()},
          {"four_sockets", four_sockets()},
          {"smt_off", smt_off()},
          {"flat_vm", flat_vm()},
          {"unknown_places", unknown_places()},
          {"mig", mig()},
          {"container", container()}};
}

machine::Topology machine_named(const std::string& name) {
  for (auto& [known, topology] : machines()) {
    if (known == name) return topology;
  }
  throw std::invalid_argument("no machine " + name);
}

std::string plan_text(const machine::Plan& plan) {
  std::ostringstream text;
  for (const std::string& decision : plan.decisions) text << "  " << decision << '\n';
  for (const machine::RankPlacement& rank : plan.ranks) {
    text << "  rank " << rank.rank << ':';
    if (rank.gpu) text << " gpu " << *rank.gpu;
    text << " cpus " << (rank.cpus ? rank.cpus->str() : "any");
    if (rank.memory_node) text << " memory " << *rank.memory_node;
    text << " threads " << rank.threads;
    if (rank.nic) text << " nic " << *rank.nic;
    if (!rank.reason.empty()) text << "; " << rank.reason;
    text << '\n';
  }
  for (const std::string& warning : plan.warnings) text << "  warning: " << warning << '\n';
  return text.str();
}

}  // namespace gantry::testing
