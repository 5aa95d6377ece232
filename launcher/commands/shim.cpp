#include "launcher/commands/shim.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>
#include <variant>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"
#include "launcher/hosts/delegation.hpp"
#include "launcher/processes/arrivals.hpp"
#include "launcher/processes/process.hpp"

namespace gantry::launcher {
namespace {

constexpr int kCannotExecute = 126;

// Variables of a job on several machines that the plan of one machine cannot tell.
constexpr std::array kJobVariables{"GANTRY_RANK",
                                   "GANTRY_WORLD_SIZE",
                                   "GANTRY_LOCAL_RANK",
                                   "GANTRY_LOCAL_SIZE",
                                   "GANTRY_NODE_RANK",
                                   "GANTRY_NODE_COUNT",
                                   "GANTRY_JOB_ID",
                                   "GANTRY_RDZV",
                                   "GANTRY_RDZV_TOKEN",
                                   "GANTRY_RESTART",
                                   "GANTRY_LIFELINE_FD",
                                   "GANTRY_ERROR_FILE",
                                   "RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "MASTER_ADDR",
                                   "MASTER_PORT"};

bool is_under_glaunch(const Environment& environment) {
  return environment.contains(kHostRanksVariable) && environment.contains("GANTRY_JOB_ID") &&
         environment.contains("GANTRY_RDZV");
}

// Index of the host of `rank` and the number of hosts, from "4,4".
std::pair<int, int> node_of(int rank, const std::string& host_ranks) {
  std::istringstream counts(host_ranks);
  int node = 0;
  int count = 0;
  int end = 0;
  for (std::string text; std::getline(counts, text, ',');) {
    end += std::atoi(text.c_str());
    if (rank >= end) ++node;
    ++count;
  }
  return {std::min(node, count - 1), count};
}

}  // namespace

ShimPlan plan_shim(const Options& options, const Machine& machine, const ProcessIdentity& identity,
                   const Environment& inherited) {
  Options local = options;
  local.wrappers.clear();  // they name ranks of the job, not of this machine
  int place = identity.local_rank;
  local.ranks = identity.local_size;
  // A scheduler that shows each task a device of its own has chosen.
  const bool is_chosen = !options.cpu_only && machine.inventory.machine.gpus.size() == 1 &&
                         inherited.contains("CUDA_VISIBLE_DEVICES");
  if (is_chosen) {
    local.ranks = 1;
    place = 0;
  }
  const Plan plan = make_plan(local, machine, inherited);
  const RankPlan& rank_plan = plan.ranks[static_cast<std::size_t>(place)];
  Environment set = rank_variables_of(plan, rank_plan, {});
  for (const char* name : kJobVariables) set.erase(name);
  if (set.contains("OMP_NUM_THREADS") && is_chosen) {
    set["OMP_NUM_THREADS"] =
        std::to_string(std::max(1, *rank_plan.omp_threads / identity.local_size));
  }
  if (is_under_glaunch(inherited)) {
    const auto [node, nodes] = node_of(identity.rank, inherited.at(kHostRanksVariable));
    const std::string rank = std::to_string(identity.rank);
    const std::string world = std::to_string(identity.world_size);
    const std::string local_rank = std::to_string(identity.local_rank);
    const std::string local_size = std::to_string(identity.local_size);
    set.insert({{"GANTRY_RANK", rank},
                {"GANTRY_WORLD_SIZE", world},
                {"GANTRY_LOCAL_RANK", local_rank},
                {"GANTRY_LOCAL_SIZE", local_size},
                {"GANTRY_NODE_RANK", std::to_string(node)},
                {"GANTRY_NODE_COUNT", std::to_string(nodes)},
                {"RANK", rank},
                {"WORLD_SIZE", world},
                {"LOCAL_RANK", local_rank},
                {"LOCAL_WORLD_SIZE", local_size}});
  }
  set.insert(inherited.begin(), inherited.end());  // what is set stays
  set.erase(kHostRanksVariable);
  return {rank_plan, std::move(set)};
}

int run_shim(const Options& options, const Machine& machine, const Environment& environment) {
  if (environment.contains("GANTRY_RANK")) {
    throw InvalidArgument(
        "shim: expected a task of srun or mpirun, but GANTRY_RANK is set already");
  }
  const ProcessIdentity identity = detect_process_identity([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
  const auto path = environment.find("PATH");
  std::vector<std::string> command =
      wrapper_of(options.wrappers, identity.rank, identity.local_rank);
  command.insert(command.end(), options.command.begin(), options.command.end());
  const auto program =
      find_program(command.front(), path == environment.end() ? "/usr/bin:/bin" : path->second);
  const auto say = [&](const std::string& what) {
    const std::string text = escape_control_characters(
        fmt::format("glaunch: shim: rank {} on {}: {}", identity.rank, machine.host, what));
    std::fprintf(stderr, "%s\n", text.c_str());
  };
  if (const auto* failure = std::get_if<ExecFailure>(&program)) {
    say(failure->message);
    return failure->exit_code();
  }
  const ShimPlan plan = plan_shim(options, machine, identity, environment);
  if (is_under_glaunch(environment)) arrive_and_wait(identity, machine.host);
  // Every rank says so: they are on different machines.
  const machine::Binding binding(plan.rank.cpus, plan.rank.memory_node, plan.rank.memory);
  for (const std::string& text : describe(binding.apply())) say("warning: " + text);
  const int error = execute(std::get<std::string>(program), command, plan.environment);
  say(fmt::format("cannot start '{}': {}", command.front(), std::strerror(error)));
  return kCannotExecute;
}

}  // namespace gantry::launcher
