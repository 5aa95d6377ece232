#include "launcher/run/hosts/delegation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "core/files/socket.hpp"
#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"

namespace gantry::launcher {
namespace {

constexpr std::string_view kLoopback = "127.0.0.1";
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;  // of batch scripts and interactive shells

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

bool is_task_of_a_step(const Environment& environment) {
  const std::string step = value_of(environment, "SLURM_STEP_ID");
  const bool is_number = !step.empty() && step.find_first_not_of("0123456789") == std::string::npos;
  return is_number && env::parse_int(step, "SLURM_STEP_ID", 0, INT64_MAX) < kFirstSpecialStep;
}

bool is_in_allocation(const Environment& environment) {
  return !value_of(environment, "SLURM_JOB_ID").empty() && !is_task_of_a_step(environment);
}

[[noreturn]] void refuse(std::string_view option) {
  throw InvalidArgument(fmt::format("{}: expected one machine, but got a job on several", option));
}

void check_options(const JobOptions& options) {
  if (options.output.only_rank) refuse("--only-rank");
  if (options.output.log_dir) refuse("--log-dir");
  if (options.output.tee) refuse("--tee");
  if (options.failure.init_timeout) refuse("--init-timeout");
  if (options.failure.stall_timeout) refuse("--stall-timeout");
  if (options.failure.keep_going) refuse("--keep-going");
  if (options.failure.elastic) refuse("--elastic");
  if (options.output.has_own_prefix) refuse("--prefix");
}

void share_ranks(const JobOptions& options, std::vector<Host>& hosts, int ranks_per_host) {
  const int count = static_cast<int>(hosts.size());
  if (!hosts.front().ranks) {
    int share = ranks_per_host;
    if (options.placement.ranks) {
      if (*options.placement.ranks % count != 0) {
        throw InvalidArgument(fmt::format(
            "-n {}: expected a multiple of the {} hosts, or a number for each: --hosts a:4,b:2",
            *options.placement.ranks, count));
      }
      share = *options.placement.ranks / count;
    }
    for (Host& host : hosts) host.ranks = share;
  }
  std::int64_t total = 0;
  for (const Host& host : hosts) total += *host.ranks;
  if (options.placement.ranks && *options.placement.ranks != total) {
    throw InvalidArgument(fmt::format("-n {}: the hosts have {} ranks; leave one of both out",
                                      *options.placement.ranks, total));
  }
  if (total > kMaxRanks) {
    throw InvalidArgument(fmt::format("--hosts: a job has at most {} ranks, but the hosts have {}",
                                      kMaxRanks, total));
  }
}

// The shim, for one rank of any host.
void append_shim(std::vector<std::string>& command, const JobOptions& options,
                 const std::string& glaunch) {
  command.insert(command.end(), {glaunch, "shim"});
  if (options.placement.cpu_only) command.emplace_back("--cpu-only");
  command.insert(command.end(), options.placement.arguments.begin(),
                 options.placement.arguments.end());
  if (options.placement.ranks_per_device > 1) {
    command.push_back(fmt::format("--ranks-per-device={}", options.placement.ranks_per_device));
  }
  command.emplace_back("--");
  command.insert(command.end(), options.command.begin(), options.command.end());
}

std::vector<std::string> srun_line(const JobOptions& options, const Delegation& delegation,
                                   bool names_hosts) {
  const int share = *delegation.hosts.front().ranks;
  for (const Host& host : delegation.hosts) {
    if (*host.ranks != share) {
      throw InvalidArgument(fmt::format(
          "--hosts: expected equally many ranks on every node of a Slurm allocation, but got {}:{} "
          "and {}:{}",
          delegation.hosts.front().name, share, host.name, *host.ranks));
    }
  }
  std::vector<std::string> line{"srun",
                                fmt::format("--nodes={}", delegation.hosts.size()),
                                fmt::format("--ntasks={}", delegation.ranks),
                                fmt::format("--ntasks-per-node={}", share),
                                "--distribution=block",
                                "--export=ALL",
                                "--kill-on-bad-exit=1",
                                "--quit-on-interrupt",
                                "--cpu-bind=none",
                                "--gpu-bind=none"};
  if (names_hosts) {
    std::vector<std::string> names;
    for (const Host& host : delegation.hosts) names.push_back(host.name);
    line.push_back(fmt::format("--nodelist={}", fmt::join(names, ",")));
  }
  line.push_back(options.output.stdin_mode == StdinMode::rank0 ? "--input=0" : "--input=none");
  if (options.output.prefix) line.emplace_back("--label");
  return line;
}

// Variables that mpirun must carry to other machines. srun carries all.
std::vector<std::string> carried_variables(const JobOptions& options,
                                           const Environment& environment) {
  std::set<std::string> names{"GANTRY_JOB_ID", "GANTRY_RDZV", "GANTRY_RDZV_TOKEN", "GANTRY_RESTART",
                              "MASTER_ADDR",   "MASTER_PORT", kHostRanksVariable};
  for (const auto& [name, value] : environment) {
    const bool is_set_by_us =
        std::any_of(rank_variables().begin(), rank_variables().end(),
                    [&, &n = name](const RankVariable& one) { return one.name == n; });
    const bool is_wanted = name.starts_with("GANTRY_") || name.starts_with("NCCL_") ||
                           name == "LD_LIBRARY_PATH" || name == "OMP_NUM_THREADS";
    if (is_wanted && (!is_set_by_us || name == "OMP_NUM_THREADS")) names.insert(name);
  }
  for (const Variable& variable : options.exports) names.insert(variable.name);
  return {names.begin(), names.end()};
}

// The launch agent "isolated" starts nothing on other machines, also on the names of this one. Then
// mpirun says that all nodes are filled. Containers set it for jobs on one machine.
bool keeps_to_this_machine(const std::string& name, const std::string& value) {
  return (name == "OMPI_MCA_plm" || name == "PRTE_MCA_plm") && value == "isolated";
}

// In the words of Open MPI 4 and 5.
std::vector<std::string> mpirun_line(const JobOptions& options, const Environment& environment,
                                     const Delegation& delegation) {
  std::vector<std::string> hosts;
  for (const Host& host : delegation.hosts) {
    hosts.push_back(fmt::format("{}:{}", host.name, *host.ranks));
  }
  std::vector<std::string> line{"mpirun", "-n", std::to_string(delegation.ranks), "--host",
                                fmt::format("{}", fmt::join(hosts, ",")),
                                // glaunch has counted the ranks: an mpirun that takes a host for
                                // full, for its cores or another job's hostfile, is mistaken.
                                "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"};
  if (options.output.prefix) line.emplace_back("--tag-output");
  for (const std::string& name : carried_variables(options, environment)) {
    line.insert(line.end(), {"-x", name});
  }
  return line;
}

}  // namespace

std::string Delegation::listen_address() const {
  return fmt::format("tcp:{}:0", address_for(hosts));
}

std::string Delegation::rank_address(const std::string& server_address) const {
  return fmt::format("tcp:{}:{}", address_for(hosts), parse_socket_address(server_address).port);
}

std::vector<std::string> Delegation::hosts_of(const std::vector<int>& wanted) const {
  std::vector<std::string> names;
  int first = 0;
  for (const Host& host : hosts) {
    const int last = first + *host.ranks;
    const bool has_one = std::any_of(wanted.begin(), wanted.end(),
                                     [&](int rank) { return rank >= first && rank < last; });
    if (has_one) names.push_back(host.name);
    first = last;
  }
  return names;
}

std::vector<Host> job_hosts(const JobOptions& options, const Environment& environment) {
  std::vector<Host> hosts = options.hosts;
  if (hosts.empty() && is_in_allocation(environment)) {
    hosts = expand_nodelist(value_of(environment, "SLURM_JOB_NODELIST"));
    if (hosts.size() < 2) hosts.clear();
  }
  if (hosts.size() == 1 && is_this_machine(hosts.front().name)) hosts.clear();
  return hosts;
}

Delegation make_delegation(const JobOptions& options, const Environment& environment,
                           std::vector<Host> hosts, int ranks_per_host,
                           const std::string& glaunch) {
  check_options(options);
  share_ranks(options, hosts, ranks_per_host);
  Delegation delegation;
  delegation.hosts = std::move(hosts);
  for (const Host& host : delegation.hosts) delegation.ranks += *host.ranks;
  const bool has_slurm = is_in_allocation(environment);
  delegation.launcher = has_slurm ? "srun" : "mpirun";
  delegation.command = has_slurm ? srun_line(options, delegation, !options.hosts.empty())
                                 : mpirun_line(options, environment, delegation);
  for (const auto& [name, value] : environment) {
    if (!has_slurm && keeps_to_this_machine(name, value)) {
      delegation.dropped_variable = fmt::format("{}={}", name, value);
    }
  }
  append_shim(delegation.command, options, glaunch);
  delegation.glaunch = glaunch;
  return delegation;
}

Environment delegation_environment(const Environment& inherited, const Delegation& delegation,
                                   const DelegationValues& values) {
  std::vector<int> counts;
  for (const Host& host : delegation.hosts) counts.push_back(*host.ranks);
  const bool loopback = address_for(delegation.hosts) == kLoopback;
  Environment result{
      {"GANTRY_JOB_ID", values.job_id},
      {"GANTRY_RDZV", values.rendezvous},
      {"GANTRY_RDZV_TOKEN", values.rendezvous_token},
      {"GANTRY_RESTART", std::to_string(values.restarts)},
      {"MASTER_ADDR", loopback ? std::string(kLoopback) : delegation.hosts.front().name},
      {"MASTER_PORT", values.master_port},
      {kHostRanksVariable, fmt::format("{}", fmt::join(counts, ","))},
  };
  for (const auto& [name, value] : inherited) {
    const bool is_outer_rank =
        name.starts_with("GANTRY_") &&
        std::any_of(rank_variables().begin(), rank_variables().end(),
                    [&, &n = name](const RankVariable& one) { return one.name == n; });
    if (is_outer_rank || is_foreign_identity(name) || keeps_to_this_machine(name, value)) continue;
    result.emplace(name, value);
  }
  return result;
}

std::string describe_delegation(const Delegation& delegation, bool json) {
  if (json) {
    Json hosts = Json::array();
    for (const Host& host : delegation.hosts) {
      hosts.push_back(Json::object({{"host", host.name}, {"ranks", *host.ranks}}));
    }
    return Json::object({{"schema", 1},
                         {"launcher", delegation.launcher},
                         {"launcher_command", delegation.command},
                         {"hosts", std::move(hosts)},
                         {"world_size", delegation.ranks}})
               .dump(2) +
           "\n";
  }
  std::string text = fmt::format("{} ranks on {} hosts, started by {}\n", delegation.ranks,
                                 delegation.hosts.size(), delegation.launcher);
  for (const Host& host : delegation.hosts) {
    text += fmt::format("{}: {} ranks\n", host.name, *host.ranks);
  }
  return text + shell_text(delegation.command) + "\n";
}

std::string shell_text(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    if (!text.empty()) text += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 ||
             std::string_view("-_=./:,@%+").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (plain) {
      text += word;
      continue;
    }
    // A character that a terminal acts on is written by its number, as bash, ksh and zsh read it
    // back.
    if (escape_control_characters(word, LineEnds::keep) != word) {
      text += "$'";
      for (const unsigned char c : word) {
        const bool is_plain = c >= ' ' && c < 0x7F && c != '\'' && c != '\\';
        text += is_plain ? std::string(1, static_cast<char>(c)) : fmt::format("\\{:03o}", c);
      }
      text += '\'';
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace gantry::launcher
