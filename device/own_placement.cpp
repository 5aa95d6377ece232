#include "device/own_placement.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>

#include "core/env/settings.hpp"
#include "device/platform/platform.hpp"
#include "machine/topology/binding.hpp"

namespace gantry {
namespace {

machine::Topology read_visible_topology() {
  machine::TopologyOptions options = machine::topology_options_from_environment();
  options.skip_links = true;
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& properties = device_properties(Device::cuda(i));
    options.known_gpus.push_back({properties.uuid, properties.pci_bus_id});
  }
  return machine::discover_topology(options);
}

// The plan of the ranks of this machine. With one device each, a scheduler has dealt them out, and
// this rank knows no other.
machine::Plan plan_of(const LocalRank& rank, machine::PlanOptions options) {
  // All CPUs of the control group: another launcher's mask is what the user wants to replace.
  machine::Topology machine = visible_topology();
  machine::CpuSet all;
  for (const machine::Topology::Core& core : machine.cores) all = all | core.cpus;
  if (!all.empty()) machine.allowed_cpus.value = all;
  const auto devices = static_cast<int>(machine.gpus.size());
  options.is_order_given = true;
  options.ranks = rank.local_size <= devices ? rank.local_size : 1;
  return plan(machine, options);
}

void bind(const LocalRank& rank, const std::string& wish) {
  machine::PlanOptions options;
  try {
    options.set_bind(wish);
    const machine::Plan placed = plan_of(rank, std::move(options));
    const auto at = static_cast<std::size_t>(rank.local_rank);
    const machine::RankPlacement& own = placed.ranks[at < placed.ranks.size() ? at : 0];
    for (const std::string& text : describe(machine::Binding(own.cpus, own.memory_node).apply())) {
      logging::warn(fmt::format("rank {}: {}", rank.rank, text));
    }
    logging::info(fmt::format("rank {}: GANTRY_BIND={}: CPUs {}; {}", rank.rank, wish,
                              own.cpus ? own.cpus->str() : "as they are",
                              own.reason.empty() ? placed.decisions.back() : own.reason));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("GANTRY_BIND={}: {}", wish, error.what()));
  }
}

// Whether something has bound this process: a look at the machine costs tens of milliseconds.
bool is_bound(const machine::CpuSet& cpus) {
  const machine::TopologyOptions options = machine::topology_options_from_environment();
  if (platform() == Platform::simulated && options.file.empty()) return false;
  return static_cast<long>(cpus.size()) < sysconf(_SC_NPROCESSORS_ONLN) || !options.file.empty();
}

}  // namespace

const machine::Topology& visible_topology() {
  static const auto& kTopology = *new machine::Topology(read_visible_topology());
  return kTopology;
}

std::vector<int> device_nodes() {
  std::vector<int> nodes(static_cast<std::size_t>(table_size()), -1);
  if (platform() != Platform::cuda) return nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    nodes[i] = visible_topology().gpus.at(i).node.value.value_or(-1);
  return nodes;
}

void place_process(const LocalRank& rank, Device device) {
  const std::string wish = env::kBind.text();
  if (rank.is_placed) return;
  if (!wish.empty()) {
    bind(rank, wish);
    return;
  }
  const machine::CpuSet cpus = machine::current_cpus();
  if (!is_bound(cpus)) return;
  const std::string problem = machine::binding_warning(visible_topology(), device.index, cpus);
  if (problem.empty()) return;
  logging::warn(
      fmt::format("rank {}: {}; set GANTRY_BIND=auto, or start with mpirun --bind-to none or srun "
                  "--cpu-bind=none",
                  rank.rank, problem));
}

}  // namespace gantry
