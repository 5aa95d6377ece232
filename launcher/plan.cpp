#include "launcher/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "core/json.hpp"

namespace gantry::launcher {
namespace {

int count_ranks(const Options& options, const DeviceInventory& inventory) {
  if (options.cpu_only) return *options.ranks;
  const int devices = static_cast<int>(inventory.devices.size());
  if (devices == 0) {
    throw InvalidArgument(fmt::format(
        "no device is visible ({}); set GANTRY_SIM_DEVICES=N for N simulated devices, or use "
        "--cpu-only -n N",
        inventory.why_none));
  }
  const int most = devices * options.ranks_per_device;
  if (options.ranks && *options.ranks > most) {
    if (options.ranks_per_device > 1) {
      throw InvalidArgument(
          fmt::format("-n {}: {} devices with --ranks-per-device {} hold at most {} ranks",
                      *options.ranks, devices, options.ranks_per_device, most));
    }
    throw InvalidArgument(fmt::format(
        "-n {}: only {} {} visible; ranks share devices only with --ranks-per-device {}, or use "
        "--cpu-only",
        *options.ranks, devices, devices == 1 ? "device is" : "devices are",
        (*options.ranks + devices - 1) / devices));
  }
  if (!options.ranks && most > kMaxRanks) {
    throw InvalidArgument(
        fmt::format("--ranks-per-device {}: {} devices would get {} ranks; a job has at most {}",
                    options.ranks_per_device, devices, most, kMaxRanks));
  }
  return options.ranks.value_or(most);
}

void place(RankPlan& rank, const DeviceInventory& inventory) {
  const std::size_t index = static_cast<std::size_t>(rank.local_rank) % inventory.devices.size();
  const InventoryDevice& device = inventory.devices[index];
  rank.device = static_cast<int>(index);
  rank.device_uuid = device.uuid;
  rank.device_bus_id = device.pci_bus_id;
  if (inventory.source != InventorySource::nvml) return;
  // A process can use one MIG instance only, and no GPU beside it; whole GPUs stay visible to all,
  // so that they can be each other's peers.
  const auto is_instance = [](const InventoryDevice& one) { return one.uuid.starts_with("MIG-"); };
  if (is_instance(device)) {
    rank.device = 0;
    rank.visible_devices = device.uuid;
    return;
  }
  std::vector<std::string_view> uuids;
  for (const InventoryDevice& other : inventory.devices) {
    if (is_instance(other)) continue;
    if (&other == &device) rank.device = static_cast<int>(uuids.size());
    uuids.push_back(other.uuid);
  }
  rank.visible_devices = fmt::format("{}", fmt::join(uuids, ","));
}

}  // namespace

Plan make_plan(const Options& options, const Machine& machine, const Environment& environment) {
  Plan plan;
  plan.command = options.command;
  plan.host = machine.host;
  plan.warnings = machine.inventory.warnings;
  const int count = count_ranks(options, machine.inventory);
  if (options.only_rank && *options.only_rank >= count) {
    throw InvalidArgument(
        fmt::format("--only-rank {}: the job has ranks 0 to {}", *options.only_rank, count - 1));
  }
  if (!options.cpu_only) plan.source = machine.inventory.source;
  for (int i = 0; i < count; ++i) {
    RankPlan rank;
    rank.rank = i;
    rank.local_rank = i;
    if (!options.cpu_only) place(rank, machine.inventory);
    plan.ranks.push_back(std::move(rank));
  }
  if (!environment.contains("OMP_NUM_THREADS")) {
    plan.omp_threads = std::max(1, machine.cpus / count);
  }
  return plan;
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
  if (rank.device) set["GANTRY_DEVICE"] = std::to_string(*rank.device);
  if (!rank.device_uuid.empty()) set["GANTRY_DEVICE_UUID"] = rank.device_uuid;
  if (!rank.device_bus_id.empty()) set["GANTRY_DEVICE_BUSID"] = rank.device_bus_id;
  if (!rank.visible_devices.empty()) set["CUDA_VISIBLE_DEVICES"] = rank.visible_devices;
  if (plan.omp_threads) set["OMP_NUM_THREADS"] = std::to_string(*plan.omp_threads);
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
  // What is chosen when a job starts is no part of the plan.
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
      entry.set("environment", rank_variables_of(plan, rank, later));
      ranks.push_back(std::move(entry));
    }
    const Json root = Json::object({{"schema", 1},
                                    {"command", plan.command},
                                    {"host", plan.host},
                                    {"devices", name(plan.source)},
                                    {"world_size", plan.ranks.size()},
                                    {"ranks", std::move(ranks)},
                                    {"unset", unset},
                                    {"warnings", plan.warnings}});
    return root.dump(2) + "\n";
  }
  std::string text = fmt::format("{} ranks on {}, devices: {}\ncommand: {}\n", plan.ranks.size(),
                                 plan.host, name(plan.source), fmt::join(plan.command, " "));
  for (const RankPlan& rank : plan.ranks) {
    text += fmt::format("rank {:<4} {}", rank.rank,
                        rank.device ? fmt::format("cuda:{}", *rank.device) : "cpu");
    if (!rank.device_uuid.empty()) {
      text += fmt::format("  {}  {}", rank.device_uuid, rank.device_bus_id);
    }
    text += '\n';
  }
  if (plan.omp_threads) text += fmt::format("OMP_NUM_THREADS={}\n", *plan.omp_threads);
  if (!unset.empty()) text += fmt::format("not inherited: {}\n", fmt::join(unset, " "));
  for (const std::string& warning : plan.warnings) text += fmt::format("warning: {}\n", warning);
  return text;
}

}  // namespace gantry::launcher
