#include "launcher/env/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <gantry/core/env.hpp>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"

namespace gantry::launcher {
namespace {

constexpr std::array<std::string_view, 12> kForeignPrefixes{
    "PMIX_",         "PMI_",         "OMPI_COMM_WORLD_", "OMPI_MCA_ess", "OMPI_MCA_orte",
    "OMPI_MCA_prte", "PRTE_MCA_ess", "PRTE_MCA_prte",    "MPI_LOCAL",    "MV2_COMM_WORLD_",
    "HYDI_",         "TORCHELASTIC_"};

// Slurm's variables stay, except those that say which task of a step this process is.
constexpr std::array<std::string_view, 19> kForeignNames{
    "OMPI_UNIVERSE_SIZE", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION", "SLURM_PROCID",
    "SLURM_LOCALID",      "SLURM_STEP_ID",    "SLURM_STEPID",       "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",       "SLURM_NPROCS",     "SLURM_GTIDS",        "SLURM_TASK_PID",
    "GROUP_RANK",         "GROUP_WORLD_SIZE", "ROLE_RANK",          "ROLE_WORLD_SIZE",
    "ROLE_NAME",          "LOCAL_SIZE",       "PRTE_LAUNCHED"};

}  // namespace

Environment current_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != text.npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

bool is_foreign_identity(std::string_view name) {
  return std::any_of(kForeignPrefixes.begin(), kForeignPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(kForeignNames.begin(), kForeignNames.end(), name) != kForeignNames.end();
}

const std::vector<RankVariable>& rank_variables() {
  static const std::vector<RankVariable> kVariables{
      {"GANTRY_RANK", "rank of the process in the job"},
      {"GANTRY_WORLD_SIZE", "number of processes of the job"},
      {"GANTRY_LOCAL_RANK", "rank among the processes of this node"},
      {"GANTRY_LOCAL_SIZE", "number of processes on this node"},
      {"GANTRY_NODE_RANK", "index of this node"},
      {"GANTRY_NODE_COUNT", "number of nodes"},
      {"GANTRY_DEVICE", "index of the rank's device among the visible ones; not with --cpu-only"},
      {"GANTRY_DEVICE_UUID", "UUID of that device; not with --cpu-only"},
      {"GANTRY_DEVICE_BUSID", "PCI bus id of that device; not with --cpu-only"},
      {"GANTRY_CPUS", "CPUs that the rank is bound to, such as 0-3,8; only if it is bound"},
      {"GANTRY_NUMA", "NUMA node whose memory the rank prefers; only if there is one"},
      {"GANTRY_JOB_ID", "name that is unique to the job"},
      {"GANTRY_RDZV", "address of the job's key/value store, which glaunch serves"},
      {"GANTRY_RDZV_TOKEN", "secret that this store asks for"},
      {"GANTRY_LIFELINE_FD", "read end of a pipe that reaches its end when glaunch dies"},
      {"GANTRY_RESTART",
       "how often the job was restarted; with --elastic, number of the replacement"},
      {"GANTRY_ELASTIC", "MIN:MAX ranks of a job that replaces ranks; only with --elastic"},
      {"GANTRY_ERROR_FILE", "where the rank may write why it fails: text, or JSON with a message"},
      {"RANK", "as GANTRY_RANK"},
      {"WORLD_SIZE", "as GANTRY_WORLD_SIZE"},
      {"LOCAL_RANK", "as GANTRY_LOCAL_RANK"},
      {"LOCAL_WORLD_SIZE", "as GANTRY_LOCAL_SIZE"},
      {"MASTER_ADDR", "host of rank 0"},
      {"MASTER_PORT", "a port that was free on that host when the job started"},
      {"CUDA_VISIBLE_DEVICES",
       "UUIDs of the visible GPUs, so that cuda:GANTRY_DEVICE is the rank's; GPUs only"},
      {"OMP_NUM_THREADS", "the rank's share of the cores, unless it is set already"},
  };
  return kVariables;
}

std::string describe_environment(const Environment& current, bool json) {
  Json list = Json::array();
  std::string text = "glaunch sets for every rank:\n";
  const auto add = [&](std::string_view name, std::string_view meaning, bool set_by_glaunch) {
    const auto found = current.find(std::string(name));
    std::string value = found == current.end() ? std::string() : found->second;
    if (name == "GANTRY_RDZV_TOKEN") value = "a secret";  // no text for terminals and logs
    if (json) {
      Json entry =
          Json::object({{"name", name}, {"meaning", meaning}, {"set_by_glaunch", set_by_glaunch}});
      if (found != current.end()) entry.set("value", value);
      list.push_back(std::move(entry));
      return;
    }
    text += fmt::format(
        "  {:<22} {}{}\n", name, meaning,
        found == current.end() ? "" : fmt::format(" (here: {})", escape_control_characters(value)));
  };
  for (const RankVariable& variable : rank_variables()) add(variable.name, variable.meaning, true);
  text += "\ngantry reads:\n";
  for (const env::Variable& variable : env::variables()) {
    const bool set_by_glaunch =
        std::any_of(rank_variables().begin(), rank_variables().end(),
                    [&](const RankVariable& other) { return other.name == variable.name; });
    if (set_by_glaunch) continue;
    add(variable.name, fmt::format("{}; {}", variable.meaning, variable.values), false);
  }
  if (json) {
    return Json::object({{"schema", 1}, {"variables", std::move(list)}}).dump(2) + "\n";
  }
  return text +
         "\nRanks do not inherit another launcher's identity (PMIX_*, PMI_*, OMPI_COMM_WORLD_*, "
         "…);\neverything else passes through untouched.\n";
}

}  // namespace gantry::launcher
