// How the supervisor starts ranks.
#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <variant>

#include "core/assert.hpp"
#include "core/files/code_file.hpp"
#include "core/files/output_file.hpp"
#include "launcher/run/processes/arrivals.hpp"
#include "launcher/run/processes/supervisor.hpp"

namespace gantry::launcher {
namespace {

constexpr const char* kDefaultPath = "/usr/bin:/bin";

// Finds srun or mpirun, which glaunch chose by itself: Note [Code of other users].
std::variant<std::string, ExecFailure> find_launcher(const std::string& name) {
  if (const auto found = find_in_path(name)) return found->string();
  return ExecFailure{ENOENT,
                     fmt::format("cannot start '{}': {} in PATH", name, std::strerror(ENOENT))};
}

}  // namespace

bool Supervisor::start_ranks() {
  const auto fail = [&](const ExecFailure& failure) {
    result_.outcome = Outcome::not_started;
    result_.start_error = failure.message;
    result_.start_error_code = failure.exit_code();
    return false;
  };
  const auto variable = environment_.find("PATH");
  const std::string path = variable == environment_.end() ? kDefaultPath : variable->second;
  const auto program = plan_.delegation ? find_launcher(plan_.command.front())
                                        : find_program(plan_.command.front(), path);
  if (const auto* failure = std::get_if<ExecFailure>(&program)) return fail(*failure);

  executables_.assign(plan_.ranks.size(), std::get<std::string>(program));
  for (const RankPlan& rank : plan_.ranks) {
    if (rank.wrapper.empty()) continue;
    const auto wrapper = find_program(rank.wrapper.front(), path);
    if (const auto* failure = std::get_if<ExecFailure>(&wrapper)) return fail(*failure);
    executables_[static_cast<std::size_t>(rank.rank)] = std::get<std::string>(wrapper);
  }
  values_ = context_.values();
  if (options_.output.stdin_mode == StdinMode::rank0) stdin_.emplace(loop_);
  for (const RankPlan& rank : plan_.ranks) {
    const auto failure =
        start_rank(rank, values_, rank.rank == 0 && stdin_ ? stdin_->source() : -1);
    if (rank.rank == 0 && stdin_) stdin_->handed_over();
    if (failure) return fail(*failure);
  }
  GANTRY_ASSERT(running_ + ended_ == static_cast<int>(plan_.ranks.size()),
                "the ranks of a job have not one process each");
  return true;
}

std::optional<ExecFailure> Supervisor::start_rank(const RankPlan& rank, const JobValues& values,
                                                  int stdin_fd) {
  remove_output(context_.error_file(rank.rank));  // of an earlier job with the same --log-dir
  const SpawnRequest request{executables_[static_cast<std::size_t>(rank.rank)],
                             command_of(plan_, rank),
                             environment_of(rank, values),
                             stdin_fd,
                             plan_.delegation ? -1 : context_.liveness_fd(),
                             descriptors_,
                             machine::Binding(rank.cpus, rank.memory_node, rank.memory)};
  const auto started = spawn(request, reaper_);
  if (const auto* failure = std::get_if<ExecFailure>(&started)) return *failure;
  const Process& process = std::get<Process>(started);
  for (const auto& text : warnings_.add(process.binding_errors)) message("warning: " + text);
  const auto index = static_cast<std::size_t>(rank.rank);
  GANTRY_ASSERT(!result_.ranks[index].started, "a rank is started twice");
  processes_.add(rank.rank, process.pid);
  result_.ranks[index].pid = process.pid;
  result_.ranks[index].started = true;
  ++running_;
  watch_end(process.pid);
  outputs_.watch(rank.rank, Stream::out, process.stdout_fd);
  outputs_.watch(rank.rank, Stream::err, process.stderr_fd);
  return std::nullopt;
}

Environment Supervisor::environment_of(const RankPlan& rank, const JobValues& values) const {
  if (!plan_.delegation) return rank_environment(environment_, plan_, rank, values);
  return delegation_environment(environment_, *plan_.delegation,
                                {values.job_id, plan_.delegation->rank_address(store_->address()),
                                 values.rendezvous_token, values.master_port, values.restarts});
}

// Another launcher that failed before all ranks were there has started nothing.
void Supervisor::look_for_missing_ranks() {
  if (!plan_.delegation || result_.outcome != Outcome::rank_failed) return;
  const std::vector<int> missing =
      missing_ranks(store_->address(), context_.store_token(), plan_.delegation->ranks);
  if (!missing.empty()) enter_missing_ranks(result_, *plan_.delegation, missing);
}

}  // namespace gantry::launcher
