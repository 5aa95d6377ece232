#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/machine/cpu_set.hpp>

namespace gantry::machine {

struct Topology;

/// The GPUs that a job gets.
/// @since 0.3
enum class GpuChoice {
  all,
  listed,  ///< those of PlanOptions::gpu_list, in that order
  best,    ///< the PlanOptions::gpu_count best connected ones
  idle,    ///< the best connected GPUs that no process uses
};

/// The assignment of GPUs to ranks.
/// @since 0.3
enum class RankOrder {
  automatic,  ///< `given` if the user listed the GPUs, else `pci`
  given,      ///< in the order of Topology::gpus, or of the list
  pci,        ///< by bus id: the order of nvidia-smi
  ring,       ///< neighbours in the best cycle of links
};

/// The CPUs and the memory that a rank gets.
/// @since 0.3
enum class BindMode {
  automatic,  ///< `numa` if every rank then has two cores and there is a choice, else `none`
  numa,       ///< the NUMA node of its GPU, shared by the ranks there
  core,       ///< whole cores of its own, near its GPU
  none,
  listed,  ///< those of PlanOptions::cpu_lists
};

/// The memory of a rank that has a NUMA node.
/// @since 0.3
enum class MemoryMode {
  prefer,  ///< of that node, of others when it is full
  bind,    ///< of that node alone
  none,    ///< as the operating system decides
};

/// The user's choices for a plan.
/// @since 0.3
struct GANTRY_API PlanOptions {
  std::optional<int> ranks;                ///< none: one per GPU, times ranks_per_gpu
  int ranks_per_gpu = 1;                   ///< with more than one, ranks share a GPU
  bool cpu_only = false;                   ///< ranks without a GPU; needs `ranks`
  GpuChoice gpus = GpuChoice::all;         ///< how the GPUs are chosen
  std::vector<std::string> gpu_list;       ///< indices, UUIDs or their beginnings, bus ids
  int gpu_count = 0;                       ///< for best and idle
  bool is_order_given = false;             ///< the user has chosen the order of Topology::gpus
  RankOrder order = RankOrder::automatic;  ///< assignment of GPUs to ranks
  BindMode bind = BindMode::automatic;     ///< CPUs and memory of the ranks
  std::vector<CpuSet> cpu_lists;           ///< one for each rank, or one for all
  MemoryMode memory = MemoryMode::prefer;  ///< memory of a rank that has a NUMA node

  /// Sets `gpus` from "all", "best:N", "idle:N" or a list. Throws: InvalidArgument.
  void set_gpus(std::string_view text);
  /// Sets `order` from "pci", "ring" or "given". Throws: InvalidArgument.
  void set_order(std::string_view text);
  /// Sets `bind` from "auto", "numa", "core", "none" or CPU lists, "0-3:4-7". Throws:
  /// InvalidArgument.
  void set_bind(std::string_view text);
  /// Sets `memory` from "prefer", "bind" or "none". Throws: InvalidArgument.
  void set_memory(std::string_view text);
};

/// The place of one rank.
/// @since 0.3
struct RankPlacement {
  int rank = 0;                    ///< on this machine
  std::optional<int> gpu;          ///< index in Topology::gpus
  std::optional<CpuSet> cpus;      ///< CPUs to bind it to; none: it is not bound
  std::optional<int> memory_node;  ///< NUMA node whose memory it gets
  int threads = 1;                 ///< its share of the cores: a value for OMP_NUM_THREADS
  std::optional<int> nic;          ///< index in Topology::nics of the nearest one
  std::string reason;              ///< why these CPUs, in one line
  friend bool operator==(const RankPlacement&, const RankPlacement&) = default;
};

/// Places of all ranks of one machine, and the decisions behind them.
/// @since 0.3
struct Plan {
  std::vector<int> gpus;               ///< those of the job, in the order of its ranks
  std::vector<RankPlacement> ranks;    ///< by rank
  std::vector<std::string> decisions;  ///< one line each
  std::vector<std::string> warnings;   ///< one line each
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Decides which rank gets which GPU, CPUs and memory. A pure function: equal arguments give equal
/// plans on every machine.
/// Throws: InvalidArgument if the options cannot be met; the text names glaunch's options.
/// @since 0.3
[[nodiscard]] GANTRY_API Plan plan(const Topology& topology, const PlanOptions& options = {});

/// A warning for a process that runs on `cpus` and uses this GPU. It tells that the CPUs are far
/// from the GPU, or are fewer than two cores. Empty if neither holds.
/// @since 0.3
[[nodiscard]] GANTRY_API std::string binding_warning(const Topology& topology, int gpu,
                                                     const CpuSet& cpus);

}  // namespace gantry::machine
