#include "launcher/shim/shim_command.hpp"

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

#include "command_line/command_line.hpp"
#include "core/text/escaped_text.hpp"
#include "launcher/run/hosts/delegation.hpp"
#include "launcher/run/options/placement_line.hpp"
#include "launcher/run/options/program.hpp"
#include "launcher/run/options/wrapper_line.hpp"
#include "launcher/run/processes/arrivals.hpp"
#include "launcher/run/processes/process.hpp"

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

ShimPlan plan_shim(const PlacementOptions& options, const Machine& machine,
                   const ProcessIdentity& identity, const Environment& inherited) {
  PlacementOptions local = options;
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
  const Plan plan = make_plan({.placement = local}, machine, inherited);
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

namespace {

// Becomes the program. Returns an exit code if the program cannot be executed.
int become_rank(const ShimOptions& options, const Machine& machine,
                const Environment& environment) {
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
      wrapper_of(options.placement.wrappers, identity.rank, identity.local_rank);
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
  const ShimPlan plan = plan_shim(options.placement, machine, identity, environment);
  if (is_under_glaunch(environment)) arrive_and_wait(identity, machine.host);
  // Every rank says so: they are on different machines.
  const machine::Binding binding(plan.rank.cpus, plan.rank.memory_node, plan.rank.memory);
  for (const std::string& text : describe(binding.apply())) say("warning: " + text);
  const int error = execute(std::get<std::string>(program), command, plan.environment);
  say(fmt::format("cannot start '{}': {}", command.front(), std::strerror(error)));
  return kCannotExecute;
}

constexpr const char* kFooter = R"(
  mpirun -n 8 --bind-to none glaunch shim -- ./app
  srun -N2 --ntasks-per-node=8 --gpus-per-node=8 glaunch shim -- ./app

It chooses the device of its rank among the devices of its machine. Then it
executes the program in its own place.
To start a program called shim: glaunch -- shim)";

struct ShimLine {
  CommandLine line{"Becomes one rank of a job of srun or mpirun.", "glaunch shim"};
  ShimOptions options;
  PlacementLine placement{line, options.placement};
  WrapperLine wrappers{line, options.placement};

  ShimLine() {
    line.set_usage("[options] [--] program [arguments…]");
    line.stop_at_first_argument();
    line.set_footer(kFooter);
  }
};

ProgramDescription describe() { return ShimLine().line.description(); }

int run(const std::vector<std::string>& arguments) {
  const ShimOptions options = parse_shim(arguments);
  if (!options.help.empty()) {
    print(options.help);
    return 0;
  }
  const Environment environment = current_environment();
  return become_rank(options, discover_machine(options.placement, environment), environment);
}

}  // namespace

ShimOptions parse_shim(const std::vector<std::string>& arguments) {
  return parse_as("shim", [&] {
    ShimLine shim;
    shim.options.help = shim.line.parse(arguments);
    if (!shim.options.help.empty()) return shim.options;
    shim.options.command = program_behind(shim.line);
    shim.placement.read();
    shim.wrappers.read();
    return shim.options;
  });
}

const Command kShimCommand{"shim", describe, run};

}  // namespace gantry::launcher
