#include "machine/topology/cpu_placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry::machine {
namespace {

constexpr std::size_t kCoresPerRank = 2;  // CUDA and NCCL have threads beside the program's

std::size_t cores_in(const std::vector<CpuSet>& cores, const CpuSet& cpus) {
  return static_cast<std::size_t>(std::count_if(
      cores.begin(), cores.end(), [&](const CpuSet& core) { return core.intersects(cpus); }));
}

std::string count_text(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// The CPUs of one rank that are near its GPU, as far as they may be used.
struct Near {
  CpuSet cpus;              // those that may be used
  bool is_known = false;    // whether the place of the GPU is known
  std::optional<int> node;  // its NUMA node
  std::string place;        // "NUMA node 1 by hwloc"
};

class Placement {
 public:
  Placement(const Topology& topology, const PlanOptions& options, Plan& plan)
      : topology_(topology),
        options_(options),
        plan_(plan),
        usable_(usable_cpus(topology)),
        cores_(allowed_cores(topology)) {
    for (const RankPlacement& rank : plan.ranks) near_.push_back(near_of(rank));
  }

  void place() {
    switch (options_.bind) {
      case BindMode::automatic:
        place_automatic();
        break;
      case BindMode::numa:
        place_numa();
        break;
      case BindMode::core:
        place_cores();
        break;
      case BindMode::none:
        decide("none: as asked");
        break;
      case BindMode::listed:
        place_listed();
        break;
    }
    count_threads();
  }

 private:
  void decide(const std::string& text) { plan_.decisions.push_back("binding " + text); }

  std::string gpu_text(const RankPlacement& rank) const {
    return rank.gpu ? fmt::format("GPU {}", *rank.gpu) : "no GPU";
  }

  bool has_node(int id) const {
    return std::any_of(topology_.nodes.begin(), topology_.nodes.end(),
                       [&](const Topology::NumaNode& node) { return node.id == id; });
  }

  Near near_of(const RankPlacement& rank) const {
    Near near;
    if (!rank.gpu) return near;
    const Topology::Gpu& gpu = topology_.gpus[static_cast<std::size_t>(*rank.gpu)];
    if (gpu.node && has_node(*gpu.node)) near.node = *gpu.node;
    if (!gpu.cpus) return near;
    near.is_known = true;
    near.cpus = *gpu.cpus & usable_;
    near.place = near.node ? fmt::format("NUMA node {} by {}", *near.node, name(gpu.node.source))
                           : fmt::format("CPUs {} by {}", gpu.cpus->str(), name(gpu.cpus.source));
    return near;
  }

  // Ranks whose near CPUs overlap with the near CPUs of `rank`, itself included.
  std::size_t sharers(std::size_t rank) const {
    return static_cast<std::size_t>(std::count_if(near_.begin(), near_.end(), [&](const Near& one) {
      return one.cpus.intersects(near_[rank].cpus);
    }));
  }

  void bind_near(std::size_t index) {
    RankPlacement& rank = plan_.ranks[index];
    rank.cpus = near_[index].cpus;
    rank.memory_node = near_[index].node;
    rank.reason = fmt::format("near {} ({}), {} for {}", gpu_text(rank), near_[index].place,
                              count_text(cores_in(cores_, *rank.cpus), "core"),
                              count_text(sharers(index), "rank"));
  }

  void place_automatic() {
    if (options_.cpu_only) return decide("auto: none, since ranks have no GPU");
    if (topology_.nodes.empty()) return decide("auto: none, since the NUMA nodes are unknown");
    if (topology_.nodes.size() == 1) {
      return decide("auto: none, since every CPU is in the one NUMA node");
    }
    std::size_t bound = 0;
    for (std::size_t i = 0; i < near_.size(); ++i) {
      RankPlacement& rank = plan_.ranks[i];
      const Near& near = near_[i];
      if (!near.is_known) {
        rank.reason = fmt::format("not bound: the NUMA node of {} is unknown", gpu_text(rank));
        continue;
      }
      if (near.cpus.empty()) {
        rank.reason =
            fmt::format("not bound: no CPU near {} ({}) may be used", gpu_text(rank), near.place);
        plan_.warnings.push_back(
            fmt::format("rank {}: no CPU near its GPU ({}) may be used", rank.rank, near.place));
        continue;
      }
      const std::size_t cores = cores_in(cores_, near.cpus);
      const std::size_t ranks = sharers(i);
      if (cores < kCoresPerRank * ranks) {
        rank.reason = fmt::format("not bound: {} near {} ({}) for {}, fewer than {} each",
                                  count_text(cores, "core"), gpu_text(rank), near.place,
                                  count_text(ranks, "rank"), kCoresPerRank);
        continue;
      }
      bind_near(i);
      ++bound;
    }
    decide(fmt::format("auto: {} of {} bound to CPUs and memory near their GPUs", bound,
                       count_text(near_.size(), "rank")));
  }

  void place_numa() {
    if (options_.cpu_only) {
      decide("numa: CPUs and memory of the NUMA nodes in turn, shared by the ranks there");
      return spread_over_nodes();
    }
    decide("numa: CPUs and memory of the GPU's NUMA node, shared by the ranks there");
    for (std::size_t i = 0; i < near_.size(); ++i) {
      RankPlacement& rank = plan_.ranks[i];
      if (!near_[i].is_known && topology_.nodes.size() == 1) {
        near_[i] = {topology_.nodes[0].cpus & usable_, true, topology_.nodes[0].id,
                    "the one NUMA node"};
      }
      if (!near_[i].is_known) {
        throw InvalidArgument(
            fmt::format("--bind numa: the NUMA node of {} is unknown; use --topo-file, --bind core "
                        "or --bind none",
                        gpu_text(rank)));
      }
      if (near_[i].cpus.empty()) {
        throw InvalidArgument(fmt::format(
            "--bind numa: no CPU near {} ({}) may be used here; use --bind core or --bind none",
            gpu_text(rank), near_[i].place));
      }
    }
    for (std::size_t i = 0; i < near_.size(); ++i) bind_near(i);
  }

  // Ranks without a GPU: neighbours share a node.
  void spread_over_nodes() {
    std::vector<const Topology::NumaNode*> nodes;
    for (const Topology::NumaNode& node : topology_.nodes) {
      if (node.cpus.intersects(usable_)) nodes.push_back(&node);
    }
    if (nodes.empty()) throw InvalidArgument("--bind numa: the NUMA nodes are unknown");
    for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
      const Topology::NumaNode& node = *nodes[i * nodes.size() / plan_.ranks.size()];
      near_[i] = {node.cpus & usable_, true, node.id, fmt::format("NUMA node {}", node.id)};
    }
    for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
      plan_.ranks[i].cpus = near_[i].cpus;
      plan_.ranks[i].memory_node = near_[i].node;
      plan_.ranks[i].reason = fmt::format("{}, spread evenly", near_[i].place);
    }
  }

  // Whole cores for each rank. Ranks with the same near CPUs divide them; where the near
  // CPUs of others lie within, they are left to these.
  void place_cores() {
    decide("core: whole cores of its own for each rank, near its GPU where that is known");
    std::map<std::vector<int>, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < near_.size(); ++i) {
      const bool anywhere = !near_[i].is_known || near_[i].cpus.empty();
      groups[(anywhere ? usable_ : near_[i].cpus).cpus()].push_back(i);
    }
    std::vector<std::pair<CpuSet, std::vector<std::size_t>>> ordered;
    for (auto& [cpus, ranks] : groups) ordered.emplace_back(CpuSet(cpus), std::move(ranks));
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
    CpuSet taken;
    for (const auto& [cpus, ranks] : ordered) {
      divide(cpus, taken, ranks);
      for (const std::size_t i : ranks) taken = taken | *plan_.ranks[i].cpus;
    }
  }

  void divide(const CpuSet& cpus, const CpuSet& taken, const std::vector<std::size_t>& ranks) {
    std::vector<CpuSet> cores;
    for (const CpuSet& core : cores_) {
      if (core.is_subset_of(cpus) && !core.intersects(taken)) cores.push_back(core);
    }
    if (cores.size() < ranks.size()) {
      throw InvalidArgument(fmt::format(
          "--bind core: {} cannot have cores of their own among the {} of CPUs {}; use --bind numa "
          "or fewer ranks",
          count_text(ranks.size(), "rank"), count_text(cores.size(), "core"), cpus.str()));
    }
    const std::size_t each = cores.size() / ranks.size();
    const std::size_t extra = cores.size() % ranks.size();
    std::size_t next = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      RankPlacement& rank = plan_.ranks[ranks[i]];
      const std::size_t count = each + (i < extra ? 1 : 0);
      CpuSet own;
      for (std::size_t end = next + count; next < end; ++next) own = own | cores[next];
      const Near& near = near_[ranks[i]];
      if (!near.cpus.empty()) rank.memory_node = near.node;
      rank.reason = count_text(count, "core") + " of its own" + where(rank, near);
      rank.cpus = std::move(own);
    }
  }

  std::string where(const RankPlacement& rank, const Near& near) const {
    if (!rank.gpu) return {};
    if (!near.is_known) return fmt::format("; the NUMA node of {} is unknown", gpu_text(rank));
    return fmt::format("{} {} ({}){}", near.cpus.empty() ? "; no CPU near" : " near",
                       gpu_text(rank), near.place, near.cpus.empty() ? " may be used" : "");
  }

  void place_listed() {
    const std::size_t lists = options_.cpu_lists.size();
    if (lists != 1 && lists != plan_.ranks.size()) {
      throw InvalidArgument(
          fmt::format("--bind: expected one CPU list or one for each of {}, but got {}",
                      count_text(plan_.ranks.size(), "rank"), lists));
    }
    decide(lists == 1 ? "by a list: one for all ranks" : "by a list: one for each rank");
    for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
      RankPlacement& rank = plan_.ranks[i];
      const CpuSet& cpus = options_.cpu_lists[lists == 1 ? 0 : i];
      if (const CpuSet forbidden = cpus - usable_; !usable_.empty() && !forbidden.empty()) {
        throw InvalidArgument(
            fmt::format("--bind: CPUs {} of rank {} may not be used here; those that may are {}",
                        forbidden.str(), rank.rank, usable_.str()));
      }
      rank.cpus = cpus;
      rank.reason = "as listed";
      if (near_[i].is_known && !cpus.intersects(near_[i].cpus)) {
        plan_.warnings.push_back(fmt::format("rank {}: CPUs {} are far from its GPU ({})",
                                             rank.rank, cpus.str(), near_[i].place));
      }
      if (topology_.nodes.size() < 2) continue;
      for (const Topology::NumaNode& node : topology_.nodes) {
        if (cpus.is_subset_of(node.cpus)) rank.memory_node = node.id;
      }
    }
  }

  void count_threads() {
    const std::size_t ranks = plan_.ranks.size();
    std::size_t least = 0;
    for (RankPlacement& rank : plan_.ranks) {
      const CpuSet& own = rank.cpus ? *rank.cpus : usable_;
      std::size_t sharing = 0;
      for (const RankPlacement& other : plan_.ranks) {
        sharing += !rank.cpus || !other.cpus || other.cpus->intersects(own);
      }
      std::size_t threads = cores_in(cores_, own) / std::max<std::size_t>(1, sharing);
      if (topology_.cpu_quota) {
        const auto granted =
            static_cast<std::size_t>(std::clamp(std::floor(*topology_.cpu_quota), 0.0, 65536.0));
        threads = std::min(threads, granted / std::max<std::size_t>(1, ranks));
      }
      threads = std::max<std::size_t>(1, threads);
      rank.threads = static_cast<int>(threads);
      least = least == 0 ? threads : std::min(least, threads);
    }
    std::string text = fmt::format("threads: {} a rank, of {} that may be used", least,
                                   count_text(cores_.size(), "core"));
    if (topology_.cpu_quota) {
      text += fmt::format(" and a quota of {:.3g} CPUs", *topology_.cpu_quota);
    }
    plan_.decisions.push_back(std::move(text));
  }

  const Topology& topology_;
  const PlanOptions& options_;
  Plan& plan_;
  CpuSet usable_;
  std::vector<CpuSet> cores_;
  std::vector<Near> near_;
};

}  // namespace

CpuSet usable_cpus(const Topology& topology) {
  if (topology.allowed_cpus) return *topology.allowed_cpus;
  CpuSet all;
  for (const Topology::NumaNode& node : topology.nodes) all = all | node.cpus;
  for (const Topology::Core& core : topology.cores) all = all | core.cpus;
  return all;
}

std::vector<CpuSet> allowed_cores(const Topology& topology) {
  const CpuSet usable = usable_cpus(topology);
  std::vector<CpuSet> cores;
  for (const Topology::Core& core : topology.cores) {
    if (CpuSet cpus = core.cpus & usable; !cpus.empty()) cores.push_back(std::move(cpus));
  }
  if (!cores.empty()) return cores;
  for (const int cpu : usable.cpus()) cores.push_back({cpu});
  return cores;
}

void place_cpus(const Topology& topology, const PlanOptions& options, Plan& plan) {
  Placement(topology, options, plan).place();
}

}  // namespace gantry::machine
