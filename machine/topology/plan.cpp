#include <gantry/machine/plan.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/machine/topology.hpp>

#include "machine/topology/cpu_placement.hpp"
#include "machine/topology/gpu_choice.hpp"

namespace gantry::machine {
namespace {

int count_ranks(const PlanOptions& options, std::size_t gpus) {
  if (options.ranks_per_gpu < 1) {
    throw InvalidArgument(
        fmt::format("plan: expected at least one rank a GPU, but got {}", options.ranks_per_gpu));
  }
  if (options.ranks && *options.ranks < 1) {
    throw InvalidArgument(
        fmt::format("plan: expected at least one rank, but got {}", *options.ranks));
  }
  if (options.cpu_only) {
    if (options.ranks) return *options.ranks;
    throw InvalidArgument("plan: expected a number of ranks, since they have no GPU to be counted");
  }
  const int most = static_cast<int>(gpus) * options.ranks_per_gpu;
  if (options.ranks && *options.ranks > most) {
    throw InvalidArgument(fmt::format("plan: expected at most {} rank{} on {} GPU{}, but got {}",
                                      most, most == 1 ? "" : "s", gpus, gpus == 1 ? "" : "s",
                                      *options.ranks));
  }
  return options.ranks.value_or(most);
}

// The nearest interface; of equally near ones, the one that the fewest ranks have.
std::optional<int> nearest_nic(const Topology& topology, int gpu, std::map<int, int>& uses) {
  const auto& paths = topology.nic_paths[static_cast<std::size_t>(gpu)];
  std::optional<int> best;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!paths[i]) continue;
    const auto nic = static_cast<int>(i);
    if (best) {
      const PciPath so_far = *paths[static_cast<std::size_t>(*best)];
      if (*paths[i] > so_far || (*paths[i] == so_far && uses[nic] >= uses[*best])) continue;
    }
    best = nic;
  }
  if (best) ++uses[*best];
  return best;
}

void warn_about_instances(const Topology& topology, Plan& plan) {
  const auto instances = std::count_if(plan.gpus.begin(), plan.gpus.end(), [&](int gpu) {
    return topology.gpus[static_cast<std::size_t>(gpu)].is_instance();
  });
  if (instances == 0 || plan.ranks.size() < 2) return;
  plan.warnings.push_back(
      fmt::format("{} of {} GPUs {} MIG: no peer access and no NVLink between instances", instances,
                  plan.gpus.size(), instances == 1 ? "is an instance of" : "are instances of"));
}

void place_memory(const Topology& topology, const PlanOptions& options, Plan& plan) {
  switch (options.memory) {
    case MemoryMode::prefer:
      return;
    case MemoryMode::none:
      for (RankPlacement& rank : plan.ranks) rank.memory_node.reset();
      plan.decisions.emplace_back("memory none: of any NUMA node");
      return;
    case MemoryMode::bind:
      break;
  }
  for (const RankPlacement& rank : plan.ranks) {
    // On a machine of one node its memory is all there is.
    if (rank.memory_node || topology.nodes.size() == 1) continue;
    throw InvalidArgument(fmt::format(
        "--mem bind: expected a NUMA node for each rank, but rank {} has none; use --bind numa",
        rank.rank));
  }
  plan.decisions.emplace_back("memory bind: of each rank's NUMA node alone");
}

}  // namespace

Plan plan(const Topology& topology, const PlanOptions& options) {
  Plan result;
  if (options.cpu_only) {
    if (options.gpus != GpuChoice::all) {
      throw InvalidArgument("--gpus and --cpu-only contradict each other");
    }
    result.decisions.emplace_back("GPUs: none, as asked");
  } else {
    if (topology.gpus.empty()) {
      throw InvalidArgument(
          fmt::format("plan: expected a GPU, but got none ({})", topology.why_no_gpu));
    }
    choose_gpus(topology, options, result);
  }
  const int count = count_ranks(options, result.gpus.size());
  std::map<int, int> uses;
  for (int i = 0; i < count; ++i) {
    RankPlacement rank;
    rank.rank = i;
    if (!options.cpu_only) {
      rank.gpu = result.gpus[static_cast<std::size_t>(i) % result.gpus.size()];
      rank.nic = nearest_nic(topology, *rank.gpu, uses);
    }
    result.ranks.push_back(std::move(rank));
  }
  place_cpus(topology, options, result);
  place_memory(topology, options, result);
  warn_about_instances(topology, result);
  return result;
}

std::string binding_warning(const Topology& topology, int gpu, const CpuSet& cpus) {
  if (gpu < 0 || gpu >= static_cast<int>(topology.gpus.size()) || cpus.empty()) return {};
  const Topology::Gpu& device = topology.gpus[static_cast<std::size_t>(gpu)];
  if (topology.nodes.size() > 1 && device.cpus && !cpus.intersects(*device.cpus)) {
    return fmt::format("CPUs {} are far from cuda:{} ({}CPUs {})", cpus.str(), gpu,
                       device.node ? fmt::format("NUMA node {}, ", *device.node) : "",
                       device.cpus->str());
  }
  const auto cores =
      std::count_if(topology.cores.begin(), topology.cores.end(),
                    [&](const Topology::Core& core) { return core.cpus.intersects(cpus); });
  if (cores == 1 && topology.cores.size() > 1) {
    return fmt::format("CPUs {} are one core, for the threads of the program, CUDA and NCCL",
                       cpus.str());
  }
  return {};
}

}  // namespace gantry::machine
