// How the supervisor starts ranks.
#include <unistd.h>

#include <variant>

#include "launcher/hosts/arrivals.hpp"
#include "launcher/processes/supervisor.hpp"

namespace gantry::launcher {

bool Supervisor::start_ranks() {
  const auto fail = [&](const ExecFailure& failure) {
    result_.outcome = Outcome::not_started;
    result_.start_error = failure.message;
    result_.start_error_code = failure.exit_code();
    return false;
  };
  const auto path = environment_.find("PATH");
  const auto program = find_program(plan_.command.front(),
                                    path == environment_.end() ? "/usr/bin:/bin" : path->second);
  if (const auto* failure = std::get_if<ExecFailure>(&program)) return fail(*failure);

  executable_ = std::get<std::string>(program);
  values_ = context_.values();
  if (options_.stdin_mode == StdinMode::rank0) stdin_.emplace(loop_);
  for (const RankPlan& rank : plan_.ranks) {
    const auto failure =
        start_rank(rank, values_, rank.rank == 0 && stdin_ ? stdin_->source() : -1);
    if (rank.rank == 0 && stdin_) stdin_->handed_over();
    if (failure) return fail(*failure);
  }
  return true;
}

std::optional<ExecFailure> Supervisor::start_rank(const RankPlan& rank, const JobValues& values,
                                                  int stdin_fd) {
  unlink(context_.error_file(rank.rank).c_str());  // of an earlier job with the same --log-dir
  const SpawnRequest request{executable_,
                             plan_.command,
                             environment_of(rank, values),
                             stdin_fd,
                             plan_.delegation ? -1 : context_.liveness_fd(),
                             descriptors_,
                             Binding(rank.cpus, rank.memory_node)};
  const auto started = spawn(request, reaper_);
  if (const auto* failure = std::get_if<ExecFailure>(&started)) return *failure;
  const Process& process = std::get<Process>(started);
  for (const auto& text : warnings_.add(process.binding_errors)) message("warning: " + text);
  const auto index = static_cast<std::size_t>(rank.rank);
  processes_.add(rank.rank, process.pid);
  result_.ranks[index].pid = process.pid;
  result_.ranks[index].started = true;
  ++running_;
  watch_end(process.pid);
  watch_output(rank.rank, Stream::out, process.stdout_fd);
  watch_output(rank.rank, Stream::err, process.stderr_fd);
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
