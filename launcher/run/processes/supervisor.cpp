#include "launcher/run/processes/supervisor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/assert.hpp"
#include "launcher/dump/dump.hpp"
#include "launcher/run/processes/cgroup.hpp"
#include "launcher/run/processes/job_signals.hpp"

namespace gantry::launcher {
namespace {

using std::chrono::milliseconds;

// The first failure seen is often secondary: the rank that caused it is still writing its core.
constexpr milliseconds kCollectTime{300};
// For what ranks leave behind when they end well.
constexpr milliseconds kLeftoverGrace{2'000};
// A killed process is gone at once, unless it hangs in the kernel.
constexpr milliseconds kKillTime{10'000};

}  // namespace

Supervisor::Supervisor(const JobOptions& options, const Plan& plan, const Environment& environment)
    : options_(options),
      plan_(plan),
      environment_(environment),
      descriptors_(reserve_descriptors(static_cast<int>(plan.ranks.size()))),
      logs_(options.output, plan),
      signal_fd_(open_signal_fd(options.failure.forward)),
      context_(options.output),
      reaper_(context_.job_id(), context_.scratch_directory()),
      processes_(reaper_),
      output_(options.output, plan, logs_, context_.scratch_directory()),
      outputs_(loop_, output_),
      // Elastic ranks are replaced; their job is never started again.
      restarts_(options.failure.elastic ? 0 : options.failure.max_restarts,
                options.failure.restart_delay),
      replacements_(options.failure, static_cast<int>(plan.ranks.size())),
      progress_(options.failure) {
  // Orphans of the ranks become this process's children, wherever they went.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  context_.make_scratch_directory();
  loop_.watch_input(signal_fd_, [this] { take_signals(); });
}

Supervisor::~Supervisor() {
  // After an exception (no memory for a process, say) ranks may be running.
  if (!over_) reaper_.clean_up();
  context_.remove_scratch_directory();  // before the reaper ends, which would do it instead
  close(signal_fd_);
}

JobResult Supervisor::run() {
  first_start_ = Clock::now();
  if (options_.failure.timeout) timeout_ = first_start_ + *options_.failure.timeout;
  prepare_run();
  for (run_once(); !stop_requested_; run_once()) {
    const std::optional<milliseconds> delay = restarts_.next_delay(result_);
    if (!delay) break;
    output_.report(describe_failure(result_));
    output_.message(fmt::format("restart {} of {} in {} s", restarts_.restarts(),
                                options_.failure.max_restarts, delay->count() / 1000.0));
    EarlierRun run{result_.job_id, result_.exit_code(), std::nullopt};
    if (const RankResult* rank = result_.root_failure()) run.first_failure = rank->rank;
    result_.earlier_runs.push_back(std::move(run));
    context_.renew();
    prepare_run();
    if (!pause(*delay)) break;
  }
  result_.duration = std::chrono::duration_cast<milliseconds>(Clock::now() - first_start_);
  return result_;  // a copy: the last ones may be reaped only while drain() waits
}

// Forgets the processes of the run before.
void Supervisor::prepare_run() {
  GANTRY_ASSERT(running_ == 0, "a job starts again while ranks of it run");
  JobResult fresh;
  fresh.earlier_runs = std::move(result_.earlier_runs);
  result_ = std::move(fresh);
  result_.job_id = context_.job_id();
  processes_.reset(plan_.ranks.size());
  outputs_.reset(plan_.ranks.size());
  phase_deadline_.reset();
  running_ = 0;
  ended_ = 0;
  over_ = false;
  output_.clear_tails();
  stdin_.reset();
  store_.reset();
  store_.emplace(StoreServerOptions{
      .address = plan_.delegation ? plan_.delegation->listen_address() : context_.store_address(),
      .token = context_.store_token()});
  if (plan_.delegation) result_.launcher = plan_.delegation->launcher;
  for (const RankPlan& rank : plan_.ranks) {
    RankResult entry;
    entry.rank = rank.rank;
    entry.device = rank.device;
    entry.device_uuid = rank.device_uuid;
    result_.ranks.push_back(std::move(entry));
  }
}

// Waits before a restart. False if the job is stopped meanwhile.
bool Supervisor::pause(milliseconds delay) {
  phase_ = Phase::pausing;
  over_ = true;  // no process of the job is left
  const Clock::time_point end = Clock::now() + delay;
  while (!stop_requested_ && Clock::now() < end) {
    loop_.wait(timeout_ ? std::min(end, *timeout_) : end);
    pass_deadlines();
  }
  over_ = stop_requested_;
  return !stop_requested_;
}

void Supervisor::run_once() {
  phase_ = Phase::running;
  start_ = Clock::now();
  oom_kills_at_start_ = oom_kills();
  restarts_.begin_run();
  // Other launchers' ranks leave their records on other machines.
  if (!plan_.delegation) progress_.begin(start_);
  if (!start_ranks()) kill_all();
  children_changed_ = true;
  while (look_for_the_end(), !over_) {
    loop_.wait(next_deadline());
    output_.flush_partial_lines([this](int rank, Stream stream) { outputs_.read(rank, stream); });
    if (stdin_) stdin_->look_again();
    pass_deadlines();
  }
  std::vector<ErrorNote> notes;
  for (RankResult& rank : result_.ranks) {
    outputs_.close(rank.rank);
    notes.push_back(rank.started ? read_error_note(context_.error_file(rank.rank)) : ErrorNote{});
    rank.tail = output_.tail(rank.rank);
  }
  enter_notes(result_, notes);
  restore_replaced();
  look_for_missing_ranks();
  // With --keep-going no rank was stopped.
  if (result_.outcome == Outcome::rank_failed && result_.sentences.empty()) {
    result_.sentences = diagnose_job(context_.job_id());
  }
}

// SIGCHLD alone is not enough: a thread that some library started may take it away from us.
void Supervisor::watch_end(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return;
  loop_.watch_input(fd, [this, fd] {
    loop_.forget(fd);
    close(fd);
    reap();
  });
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof info) == sizeof info) take_signal(info);
}

void Supervisor::take_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  switch (signal) {
    case SIGCHLD:
      reap();
      return;
    case SIGTSTP:
      processes_.signal_groups(SIGSTOP);
      stop_here();
      processes_.signal_groups(SIGCONT);
      progress_.forgive();
      return;
    case SIGCONT:
      processes_.signal_groups(SIGCONT);
      return;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      stop_requested_ = true;
      if (draining_) {
        draining_ = false;
      } else if (phase_ == Phase::pausing) {
        result_.outcome = Outcome::interrupted;
        result_.signal = signal;
      } else if (phase_ == Phase::running || phase_ == Phase::collecting) {
        if (result_.outcome == Outcome::ok) {
          result_.outcome = Outcome::interrupted;
          result_.signal = signal;
        }
        stop(signal, options_.failure.grace);
      } else {
        kill_all();
      }
      return;
    default:  // one of --forward: for the ranks themselves, as their children may not expect it
      processes_.signal_ranks(signal);
  }
}

void Supervisor::reap() {
  int status = 0;
  bool has_orphan = false;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    children_changed_ = true;
    processes_.forget(pid);
    if (pid == reaper_.pid()) {
      reaper_.mark_reaped();
      output_.message(
          "warning: the reaper process is gone; if glaunch is killed now, processes "
          "that the ranks started may survive");
      continue;
    }
    if (const std::optional<int> rank = processes_.running_rank(pid)) {
      rank_ended(*rank, status);
    } else {
      has_orphan = true;
    }
  }
  // It may have been the last one of an ended rank's group, whose number others get then.
  if (has_orphan) processes_.signal_groups(0);
}

void Supervisor::rank_ended(int rank, int status) {
  RankResult& entry = result_.ranks[static_cast<std::size_t>(rank)];
  GANTRY_ASSERT(entry.started && !entry.ended, "a process is reaped for a rank that does not run");
  GANTRY_ASSERT(running_ > 0, "more ranks end than run");
  entry.ended = true;
  processes_.mark_ended(rank);
  entry.order = ended_++;
  entry.duration = std::chrono::duration_cast<milliseconds>(Clock::now() - start_);
  --running_;
  if (WIFSIGNALED(status)) {
    entry.signal = WTERMSIG(status);
    entry.core_dumped = WCOREDUMP(status);
    entry.out_of_memory = entry.signal == SIGKILL && !entry.stopped_by_glaunch &&
                          oom_kills_at_start_ && oom_kills() > oom_kills_at_start_;
  } else {
    entry.exit_code = WEXITSTATUS(status);
  }
  processes_.signal_groups(0);  // forgets the group if it is empty
  const int id = replacements_.id_of(rank);
  entry.failed() ? store_->mark_lost(id) : store_->mark_ended(id);
  const bool is_replaceable = replacements_.is_elastic() && phase_ == Phase::running;
  if (is_replaceable) return go_on_without(entry);
  if (entry.failed()) end_job(entry);
}

// A failure ends the job, unless glaunch stopped the rank.
void Supervisor::end_job(const RankResult& failed) {
  if (failed.stopped_by_glaunch) return;
  if (result_.outcome == Outcome::ok) result_.outcome = Outcome::rank_failed;
  if (phase_ == Phase::running && !options_.failure.keep_going) {
    phase_ = Phase::collecting;
    phase_deadline_ = Clock::now() + kCollectTime;
  }
}

void Supervisor::stop(int signal, milliseconds grace) {
  reap();  // ranks that ended already were not stopped here
  // While the ranks that hang are there.
  if (result_.outcome == Outcome::rank_failed || result_.outcome == Outcome::timed_out ||
      result_.outcome == Outcome::stalled) {
    result_.sentences = diagnose_job(context_.job_id());
  }
  for (RankResult& rank : result_.ranks) {
    if (rank.started && !rank.ended) rank.stopped_by_glaunch = true;
  }
  phase_ = Phase::stopping;
  phase_deadline_ = Clock::now() + grace;
  processes_.signal_everyone(signal);
  processes_.signal_groups(SIGCONT);  // a stopped process would not notice
  children_changed_ = true;
}

void Supervisor::kill_all() {
  reap();
  for (RankResult& rank : result_.ranks) {
    if (rank.started && !rank.ended) rank.stopped_by_glaunch = true;
  }
  phase_ = Phase::killing;
  phase_deadline_ = Clock::now() + kKillTime;
  processes_.signal_everyone(SIGKILL);
  children_changed_ = true;
}

void Supervisor::pass_deadlines() {
  const auto now = Clock::now();
  if (timeout_ && *timeout_ <= now) {
    timeout_.reset();
    stop_requested_ = true;
    if (phase_ == Phase::pausing) result_.outcome = Outcome::timed_out;
    if (phase_ == Phase::running || phase_ == Phase::collecting) {
      if (result_.outcome == Outcome::ok) result_.outcome = Outcome::timed_out;
      stop(SIGTERM, options_.failure.grace);
    }
  }
  if (phase_ == Phase::running) start_replacements();
  if (phase_ == Phase::running) look_at_progress(now);
  if (!phase_deadline_ || *phase_deadline_ > now) return;
  phase_deadline_.reset();
  switch (phase_) {
    case Phase::running:
      return;
    case Phase::collecting:
      stop(SIGTERM, options_.failure.grace);
      return;
    case Phase::stopping:
      kill_all();
      return;
    case Phase::pausing:
      return;
    case Phase::killing:
      output_.message("processes of the job do not die: they hang in the kernel");
      stop_requested_ = true;  // they may still hold the devices
      over_ = true;
      return;
  }
}

void Supervisor::look_at_progress(Clock::time_point now) {
  ProgressWatch::Look found =
      progress_.look(now, context_.job_id(), [this] { return ranks_without_group(); });
  for (const std::string& text : found.messages) output_.message(text);
  if (!found.stop_cause) return;
  replacements_.cancel();
  result_.outcome = Outcome::stalled;
  result_.stop_cause = std::move(*found.stop_cause);
  stop(SIGTERM, options_.failure.grace);
}

// Ranks that are there and not in the job's store, which Communicator::world() enters.
std::vector<int> Supervisor::ranks_without_group() const {
  const std::vector<int> connected = store_->connected_ranks();
  std::vector<int> late;
  for (const RankResult& rank : result_.ranks) {
    const int id = replacements_.id_of(rank.rank);
    const bool is_there = std::find(connected.begin(), connected.end(), id) != connected.end();
    if (rank.started && !rank.ended && !is_there) late.push_back(rank.rank);
  }
  return late;
}

// The job is over when its ranks and everything that they started are gone.
void Supervisor::look_for_the_end() {
  std::vector<pid_t> left;
  while (left.empty()) {
    if (running_ > 0 || !children_changed_ || over_) return;
    children_changed_ = false;
    left = processes_.orphans();
    // One whose parent ended during the search was passed over as another process's child.
    if (left.empty()) reap();
    over_ = left.empty() && !children_changed_;
    GANTRY_ASSERT(!over_ || std::ranges::none_of(
                                result_.ranks,
                                [](const RankResult& rank) { return rank.started && !rank.ended; }),
                  "a job is over while a rank runs");
  }
  if (phase_ == Phase::running || phase_ == Phase::collecting) {
    stop(SIGTERM, std::min(options_.failure.grace, kLeftoverGrace));
    return;
  }
  // Orphans of orphans turn up one generation at a time.
  processes_.signal_late(left);
}

std::optional<Clock::time_point> Supervisor::next_deadline() const {
  std::optional<Clock::time_point> first;
  const bool is_running = phase_ == Phase::running;
  const auto none = std::optional<Clock::time_point>();
  for (const auto& deadline :
       {phase_deadline_, timeout_, output_.deadline(), stdin_ ? stdin_->deadline() : none,
        is_running ? replacements_.deadline() : none, is_running ? progress_.deadline() : none}) {
    if (deadline && (!first || *deadline < *first)) first = deadline;
  }
  return first;
}

void Supervisor::drain() {
  draining_ = true;
  bool drained = output_.drained();
  output_.watch_drained(loop_, [&] { drained = output_.drained(); });
  while (draining_ && !drained) loop_.wait(std::nullopt);
  if (!draining_) return;
  output_.report_loss();
  drained = output_.drained();
  while (draining_ && !drained) loop_.wait(std::nullopt);
}

}  // namespace gantry::launcher
