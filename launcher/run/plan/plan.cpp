#include "launcher/run/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "launcher/run/options/wrapper.hpp"
#include "launcher/topo/topo_text.hpp"

namespace gantry::launcher {
namespace {

// Number of devices that --gpus leaves.
int count_devices(const machine::PlanOptions& placement, const DeviceInventory& inventory) {
  switch (placement.gpus) {
    case machine::GpuChoice::all:
      break;
    case machine::GpuChoice::listed:
      return static_cast<int>(placement.gpu_list.size());
    case machine::GpuChoice::best:
    case machine::GpuChoice::idle:
      return placement.gpu_count;
  }
  return static_cast<int>(inventory.machine.gpus.size());
}

int count_ranks(const PlacementOptions& options, const DeviceInventory& inventory, bool dry_run) {
  if (options.cpu_only) return *options.ranks;
  // A dry run plans for the machine of a topology file; nothing else can use its devices.
  const bool is_elsewhere = inventory.machine.gpu_source == machine::FactSource::file && !dry_run;
  if (inventory.machine.gpus.empty() || is_elsewhere) {
    throw InvalidArgument(fmt::format(
        "no device is visible ({}); set GANTRY_SIM_DEVICES=N for N simulated devices, or use "
        "--cpu-only -n N",
        inventory.why_none));
  }
  const int devices = count_devices(options.choice, inventory);
  const int most = devices * options.ranks_per_device;
  if (options.ranks && *options.ranks > most) {
    if (options.ranks_per_device > 1) {
      throw InvalidArgument(
          fmt::format("-n {}: {} devices with --ranks-per-device {} hold at most {} ranks",
                      *options.ranks, devices, options.ranks_per_device, most));
    }
    throw InvalidArgument(fmt::format(
        "-n {}: only {} {} {}; ranks share devices only with --ranks-per-device {}, or use "
        "--cpu-only",
        *options.ranks, devices, devices == 1 ? "device is" : "devices are",
        options.choice.gpus == machine::GpuChoice::all ? "visible" : "chosen",
        (*options.ranks + devices - 1) / devices));
  }
  if (!options.ranks && most > kMaxRanks) {
    throw InvalidArgument(
        fmt::format("--ranks-per-device {}: {} devices would get {} ranks; a job has at most {}",
                    options.ranks_per_device, devices, most, kMaxRanks));
  }
  return options.ranks.value_or(most);
}

// Whether ranks need a list of their devices: MIG instances do, and choices other than all do.
bool needs_list(const DeviceInventory& inventory, const std::vector<int>& chosen) {
  if (inventory.machine.gpu_source != machine::FactSource::simulated) return true;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] != static_cast<int>(i)) return true;
  }
  return chosen.size() != inventory.machine.gpus.size();
}

// Enters the device of a rank, and the list of devices that it sees.
void place(RankPlan& rank, int chosen, const DeviceInventory& inventory,
           const std::vector<int>& gpus) {
  const auto gpu_at = [&](int index) -> const machine::Topology::Gpu& {
    return inventory.machine.gpus[static_cast<std::size_t>(index)];
  };
  const machine::Topology::Gpu& gpu = gpu_at(chosen);
  rank.device = chosen;
  rank.device_uuid = gpu.uuid;
  rank.device_bus_id = gpu.bus_id;
  if (!needs_list(inventory, gpus)) return;
  // A process can use one MIG instance only, and no GPU beside it; whole GPUs stay visible to all,
  // so that they can be each other's peers.
  if (gpu.is_instance()) {
    rank.device = 0;
    rank.visible_devices = gpu.uuid;
    return;
  }
  std::vector<std::string_view> uuids;
  bool is_complete = true;
  for (const int other : gpus) {
    if (gpu_at(other).is_instance()) continue;
    if (other == chosen) rank.device = static_cast<int>(uuids.size());
    uuids.push_back(gpu_at(other).uuid);
    is_complete = is_complete && !uuids.back().empty();
  }
  // NCCL's and hwloc's files have no UUIDs.
  if (is_complete) rank.visible_devices = fmt::format("{}", fmt::join(uuids, ","));
}

RankPlan rank_plan_of(const machine::RankPlacement& placed, const DeviceInventory& inventory,
                      const std::vector<int>& gpus) {
  RankPlan rank;
  rank.rank = placed.rank;
  rank.local_rank = placed.rank;
  if (placed.gpu) place(rank, *placed.gpu, inventory, gpus);
  rank.cpus = placed.cpus;
  rank.memory_node = placed.memory_node;
  if (placed.nic) {
    rank.nic = nic_text(inventory.machine.nics[static_cast<std::size_t>(*placed.nic)]);
  }
  rank.reason = placed.reason;
  return rank;
}

std::string placement_text(const RankPlan& rank) {
  std::string text = fmt::format("  cpus {}", rank.cpus ? rank.cpus->str() : "any");
  if (rank.memory_node) text += fmt::format("  memory {}", *rank.memory_node);
  if (!rank.nic.empty()) text += fmt::format("  nic {}", rank.nic);
  return text;
}

// "OMP_NUM_THREADS=4", or the numbers of all ranks if they differ.
std::string threads_text(const Plan& plan) {
  std::vector<int> threads;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.omp_threads) threads.push_back(*rank.omp_threads);
  }
  if (threads.empty()) return {};
  const bool is_equal = std::all_of(threads.begin(), threads.end(),
                                    [&](int count) { return count == threads.front(); });
  if (is_equal) threads.resize(1);
  return fmt::format("OMP_NUM_THREADS={}\n", fmt::join(threads, ","));
}

}  // namespace

Plan make_plan(const JobOptions& options, const Machine& machine, const Environment& environment) {
  Plan plan;
  plan.command = options.command;
  plan.host = machine.host;
  plan.warnings = machine.inventory.warnings;
  const int count = count_ranks(options.placement, machine.inventory, options.dry_run);
  if (options.output.only_rank && *options.output.only_rank >= count) {
    throw InvalidArgument(fmt::format("--only-rank {}: the job has ranks 0 to {}",
                                      *options.output.only_rank, count - 1));
  }
  machine::PlanOptions choice = options.placement.choice;
  choice.ranks = count;
  choice.ranks_per_gpu = options.placement.ranks_per_device;
  choice.cpu_only = options.placement.cpu_only;
  choice.is_order_given = machine.inventory.is_order_given;
  const machine::Plan placed = machine::plan(machine.inventory.machine, choice);
  if (!options.placement.cpu_only) plan.source = machine.inventory.source();
  plan.decisions = placed.decisions;
  plan.warnings.insert(plan.warnings.end(), placed.warnings.begin(), placed.warnings.end());
  if (options.failure.elastic) {
    plan.elastic = options.failure.elastic;
    plan.decisions.push_back(fmt::format(
        "elastic: the job goes on while {} of {} ranks are left; {} replacements at most",
        plan.elastic->fewest, plan.elastic->most, options.failure.max_restarts));
  }
  check_wrappers(options.placement.wrappers, count);
  for (const machine::RankPlacement& one : placed.ranks) {
    plan.ranks.push_back(rank_plan_of(one, machine.inventory, placed.gpus));
    plan.ranks.back().memory = choice.memory;
    plan.ranks.back().wrapper = wrapper_of(options.placement.wrappers, one.rank, one.rank);
    if (!environment.contains("OMP_NUM_THREADS")) plan.ranks.back().omp_threads = one.threads;
  }
  return plan;
}

std::vector<std::string> command_of(const Plan& plan, const RankPlan& rank) {
  std::vector<std::string> command = rank.wrapper;
  command.insert(command.end(), plan.command.begin(), plan.command.end());
  return command;
}

Plan plan_of(const Delegation& delegation) {
  Plan plan;
  plan.command = delegation.command;
  plan.host = "this machine";
  plan.ranks.emplace_back();
  plan.delegation = delegation;
  return plan;
}

Environment rank_variables_of(const Plan& plan, const RankPlan& rank, const JobValues& values) {
  const std::string world = std::to_string(plan.ranks.size());
  const std::string global = std::to_string(rank.rank);
  const std::string local = std::to_string(rank.local_rank);
  Environment set{
      {"GANTRY_RANK", global},
      {"GANTRY_WORLD_SIZE", world},
      {"GANTRY_LOCAL_RANK", local},
      {"GANTRY_LOCAL_SIZE", world},
      {"GANTRY_NODE_RANK", "0"},
      {"GANTRY_NODE_COUNT", "1"},
      {"GANTRY_JOB_ID", values.job_id},
      {"GANTRY_RDZV", values.rendezvous},
      {"GANTRY_RDZV_TOKEN", values.rendezvous_token},
      {"GANTRY_LIFELINE_FD", values.liveness_fd},
      {"GANTRY_RESTART", std::to_string(values.restarts)},
      {"GANTRY_ERROR_FILE", fmt::format("{}{}.error", values.error_file_prefix, rank.rank)},
      {"RANK", global},
      {"WORLD_SIZE", world},
      {"LOCAL_RANK", local},
      {"LOCAL_WORLD_SIZE", world},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", values.master_port},
  };
  if (plan.elastic) {
    set["GANTRY_ELASTIC"] = fmt::format("{}:{}", plan.elastic->fewest, plan.elastic->most);
  }
  if (rank.device) set["GANTRY_DEVICE"] = std::to_string(*rank.device);
  if (!rank.device_uuid.empty()) set["GANTRY_DEVICE_UUID"] = rank.device_uuid;
  if (!rank.device_bus_id.empty()) set["GANTRY_DEVICE_BUSID"] = rank.device_bus_id;
  if (!rank.visible_devices.empty()) set["CUDA_VISIBLE_DEVICES"] = rank.visible_devices;
  if (rank.omp_threads) set["OMP_NUM_THREADS"] = std::to_string(*rank.omp_threads);
  if (rank.cpus) set["GANTRY_CPUS"] = rank.cpus->str();
  if (rank.memory_node) set["GANTRY_NUMA"] = std::to_string(*rank.memory_node);
  return set;
}

Environment rank_environment(const Environment& inherited, const Plan& plan, const RankPlan& rank,
                             const JobValues& values) {
  Environment result = rank_variables_of(plan, rank, values);
  for (const auto& [name, value] : inherited) {
    // An outer glaunch's answer to a question that this job does not pose would be a wrong one.
    const bool ours = std::any_of(rank_variables().begin(), rank_variables().end(),
                                  [&, n = std::string_view(name)](const RankVariable& variable) {
                                    return n.starts_with("GANTRY_") && variable.name == n;
                                  });
    if (!ours && !is_foreign_identity(name)) result.emplace(name, value);
  }
  return result;
}

std::string describe_plan(const Plan& plan, const Environment& inherited, bool json) {
  // A choice that is made when a job starts is no part of the plan.
  const JobValues later{"<job>", "<rendezvous>", "<token>", "<fd>", "<directory>/rank", "<port>"};
  std::vector<std::string> unset;
  for (const auto& [name, value] : inherited) {
    if (is_foreign_identity(name)) unset.push_back(name);
  }
  if (json) {
    Json ranks = Json::array();
    for (const RankPlan& rank : plan.ranks) {
      Json entry = Json::object(
          {{"rank", rank.rank}, {"local_rank", rank.local_rank}, {"device", rank.device}});
      if (!rank.device_uuid.empty()) entry.set("device_uuid", rank.device_uuid);
      if (!rank.device_bus_id.empty()) entry.set("device_bus_id", rank.device_bus_id);
      if (rank.cpus) entry.set("cpus", rank.cpus->str());
      if (rank.memory_node) entry.set("memory_node", *rank.memory_node);
      if (!rank.nic.empty()) entry.set("nic", rank.nic);
      if (!rank.reason.empty()) entry.set("reason", rank.reason);
      if (!rank.wrapper.empty()) entry.set("command", command_of(plan, rank));
      entry.set("environment", rank_variables_of(plan, rank, later));
      ranks.push_back(std::move(entry));
    }
    const Json root = Json::object({{"schema", 1},
                                    {"command", plan.command},
                                    {"host", plan.host},
                                    {"devices", plan.source},
                                    {"world_size", plan.ranks.size()},
                                    {"decisions", plan.decisions},
                                    {"ranks", std::move(ranks)},
                                    {"unset", unset},
                                    {"warnings", plan.warnings}});
    return root.dump(2) + "\n";
  }
  std::string text = fmt::format("{} ranks on {}, devices: {}\ncommand: {}\n", plan.ranks.size(),
                                 plan.host, plan.source, fmt::join(plan.command, " "));
  for (const std::string& decision : plan.decisions) text += decision + '\n';
  for (const RankPlan& rank : plan.ranks) {
    text += fmt::format("rank {:<4} {}", rank.rank,
                        rank.device ? fmt::format("cuda:{}", *rank.device) : "cpu");
    for (const std::string& known : {rank.device_uuid, rank.device_bus_id}) {
      if (!known.empty()) text += "  " + known;
    }
    text += placement_text(rank) + '\n';
    if (!rank.reason.empty()) text += fmt::format("          {}\n", rank.reason);
    if (!rank.wrapper.empty()) {
      text += fmt::format("          command: {}\n", fmt::join(command_of(plan, rank), " "));
    }
  }
  text += threads_text(plan);
  if (!unset.empty()) text += fmt::format("not inherited: {}\n", fmt::join(unset, " "));
  for (const std::string& warning : plan.warnings) text += fmt::format("warning: {}\n", warning);
  return escape_control_characters(text, LineEnds::keep);
}

}  // namespace gantry::launcher
