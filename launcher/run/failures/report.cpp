#include "launcher/run/failures/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "launcher/command/option_values.hpp"
#include "launcher/command/rank_list.hpp"

namespace gantry::launcher {
namespace {

constexpr std::size_t kMaxErrorBytes = 64 << 10;  // of a message
constexpr int kSignalBase = 128;
constexpr int kTimeoutCode = 124;

std::string where(const RankResult& rank) {
  std::string text = fmt::format("pid {}", rank.pid);
  if (rank.device) text += fmt::format(", cuda:{}", *rank.device);
  if (!rank.device_uuid.empty()) text += fmt::format(" {}", rank.device_uuid);
  return text;
}

int code_of(const RankResult& rank) {
  return rank.signal != 0 ? kSignalBase + rank.signal : rank.exit_code;
}

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

std::string end_of(const RankResult& rank) {
  if (!rank.ended) return fmt::format("pid {}", rank.pid);
  return rank.signal != 0 ? signal_name(rank.signal) : fmt::format("code {}", rank.exit_code);
}

// A line with how each group of these ranks ended: "ranks 0-2 (SIGTERM), rank 5 (code 1)".
void add_ranks(std::vector<std::string>& lines, std::string_view title, const JobResult& job,
               ExitReason reason) {
  std::map<std::string, std::vector<int>> by_end;
  for (const RankResult& rank : job.ranks) {
    if (rank.exit_reason() == reason) by_end[end_of(rank)].push_back(rank.rank);
  }
  if (by_end.empty()) return;
  std::string text;
  for (const auto& [end, ranks] : by_end) {
    text += fmt::format("{}rank{} {} ({})", text.empty() ? "" : ", ", ranks.size() == 1 ? "" : "s",
                        rank_list(ranks), end);
  }
  lines.push_back(fmt::format("{}: {}", title, text));
}

// The content of the rank's error file.
void add_error(std::vector<std::string>& lines, const RankResult& rank) {
  if (rank.error.empty()) return;
  lines.push_back(fmt::format("rank {} says:\n{}", rank.rank, indented(rank.error)));
}

void add_tail(std::vector<std::string>& lines, const RankResult& rank) {
  if (rank.tail.empty()) return;
  std::string text = fmt::format("last {} lines of rank {}:", rank.tail.size(), rank.rank);
  if (rank.tail.size() == 1) text = fmt::format("last line of rank {}:", rank.rank);
  for (const std::string& line : rank.tail) text += "\n  " + line;
  lines.push_back(text);
}

// The findings of glaunch: which rank, and what it did or did not do.
void add_headline(std::vector<std::string>& lines, const JobResult& job,
                  const RankResult* root_failure) {
  std::vector<std::string> sentences = job.sentences;
  if (root_failure != nullptr) {
    const std::string who = fmt::format("rank {} ({})", root_failure->rank, where(*root_failure));
    const bool failed = root_failure->failed() && !root_failure->stopped_by_glaunch;
    // The first failure is there if there is a root_failure.
    const RankResult& first = *job.first_failure();
    if (first.cause == FailureCause::mismatch && !first.named_ranks.empty()) {
      std::vector<int> ranks = first.named_ranks;
      std::sort(ranks.begin(), ranks.end());
      lines.push_back(fmt::format("ranks {} made different calls", rank_list(ranks)));
      sentences.clear();
    }
    if (failed) {
      lines.push_back(fmt::format("{} {}", who, root_failure->how()));
      // Its own failure says enough, unless it is secondary.
      if (!root_failure->is_secondary()) sentences.clear();
    } else if (root_failure->ended && !root_failure->stopped_by_glaunch) {
      lines.push_back(fmt::format("{} ended with code 0 while others waited", who));
    } else if (!sentences.empty()) {
      lines.push_back(fmt::format("{} held up the job: {}", who, sentences.front()));
      sentences.erase(sentences.begin());
    } else {
      lines.push_back(fmt::format("{} held up the job: others waited for it in vain", who));
    }
  }
  for (std::string& sentence : sentences) lines.push_back(std::move(sentence));
}

}  // namespace

ExitReason RankResult::exit_reason() const {
  if (!started) return ExitReason::not_started;
  if (!ended) return ExitReason::still_running;
  if (stopped_by_glaunch) return ExitReason::stopped_by_glaunch;
  if (!failed()) return ExitReason::ok;
  return is_secondary() ? ExitReason::failed_because_of_another_rank : ExitReason::failed_by_itself;
}

bool RankResult::is_secondary() const {
  return cause != FailureCause::itself &&
         std::find(named_ranks.begin(), named_ranks.end(), rank) == named_ranks.end();
}

std::string RankResult::how() const {
  if (signal == 0) return fmt::format("exited with code {}", exit_code);
  return fmt::format("was killed by {}{}{}", signal_name(signal),
                     core_dumped ? " (core dumped)" : "", out_of_memory ? " (out of memory)" : "");
}

const RankResult* JobResult::first_failure() const {
  const RankResult* first = nullptr;
  for (const RankResult& rank : ranks) {
    if (!rank.failed() || rank.stopped_by_glaunch) continue;
    if (first == nullptr || std::pair(rank.is_secondary(), rank.order) <
                                std::pair(first->is_secondary(), first->order)) {
      first = &rank;
    }
  }
  return first;
}

const RankResult* JobResult::root_failure() const {
  const RankResult* rank = first_failure();
  // A secondary failure may name another one. Two that name each other stay as they are.
  for (std::size_t steps = 0; steps < ranks.size(); ++steps) {
    if (rank == nullptr || !rank->is_secondary() || rank->named_ranks.empty()) break;
    const auto by_itself = std::find_if(
        rank->named_ranks.begin(), rank->named_ranks.end(),
        [&](int named) { return !ranks[static_cast<std::size_t>(named)].is_secondary(); });
    const int next = by_itself == rank->named_ranks.end() ? rank->named_ranks.front() : *by_itself;
    rank = &ranks[static_cast<std::size_t>(next)];
  }
  return rank;
}

int JobResult::exit_code() const {
  switch (outcome) {
    case Outcome::ok:
      return 0;
    case Outcome::rank_failed:
      return code_of(*first_failure());
    case Outcome::timed_out:
    case Outcome::stalled:
      return kTimeoutCode;
    case Outcome::interrupted:
      return kSignalBase + signal;
    case Outcome::not_started:
      return start_error_code;
  }
  return 0;
}

void enter_notes(JobResult& job, const std::vector<ErrorNote>& notes) {
  for (std::size_t i = 0; i < std::min(notes.size(), job.ranks.size()); ++i) {
    enter_note(job.ranks[i], notes[i], job.ranks.size());
  }
}

void enter_note(RankResult& rank, const ErrorNote& note, std::size_t ranks) {
  rank.error = escape_control_characters(std::string_view(note.message).substr(0, kMaxErrorBytes),
                                         LineEnds::keep);
  rank.cause = note.cause;
  rank.named_ranks = note.ranks;
  std::erase_if(rank.named_ranks,
                [&](int named) { return named < 0 || named >= static_cast<int>(ranks); });
}

std::vector<std::string> describe_rank(const RankResult& rank) {
  std::vector<std::string> lines{
      fmt::format("rank {} ({}) {}", rank.rank, where(rank), rank.how())};
  add_error(lines, rank);
  add_tail(lines, rank);
  return lines;
}

std::vector<std::string> describe_failure(const JobResult& job) {
  std::vector<std::string> lines;
  switch (job.outcome) {
    case Outcome::ok:
      return lines;
    case Outcome::not_started:
      return {escape_control_characters(job.start_error, LineEnds::keep)};
    case Outcome::timed_out:
      lines.push_back(fmt::format("the job was stopped after {} s: --timeout is over",
                                  job.duration.count() / 1000.0));
      break;
    case Outcome::stalled:
      lines.push_back(fmt::format("the job was stopped: {}", job.stop_cause));
      break;
    case Outcome::interrupted:
      lines.push_back(fmt::format("the job was stopped by {}", signal_name(job.signal)));
      break;
    case Outcome::rank_failed:
      break;
  }
  if (!job.launcher.empty()) {
    // The messages of the ranks are above. glaunch does not see how each of them ended.
    if (job.outcome == Outcome::rank_failed) {
      lines.push_back(fmt::format("{} {}: a rank failed; its messages are above", job.launcher,
                                  job.ranks.front().how()));
    }
    lines.insert(lines.end(), job.sentences.begin(), job.sentences.end());
    return lines;
  }
  const RankResult* root_failure = job.root_failure();
  add_headline(lines, job, root_failure);
  if (root_failure != nullptr) {
    // A rank that hangs says nothing; those that waited for it do.
    const RankResult& speaker = root_failure->error.empty() ? *job.first_failure() : *root_failure;
    add_error(lines, speaker);
    add_tail(lines, *root_failure);
  }
  add_ranks(lines, "failed by itself", job, ExitReason::failed_by_itself);
  add_ranks(lines, "failed because of another rank", job,
            ExitReason::failed_because_of_another_rank);
  add_ranks(lines, "stopped by glaunch", job, ExitReason::stopped_by_glaunch);
  add_ranks(lines, "still running", job, ExitReason::still_running);
  return lines;
}

namespace {

Json rank_json(const RankResult& rank) {
  Json entry = Json::object({{"rank", rank.rank},
                             {"pid", rank.pid},
                             {"device", rank.device},
                             {"class", name(rank.exit_reason())},
                             {"exit_code", rank.ended ? Json(code_of(rank)) : Json()}});
  if (rank.signal != 0) {
    entry.set("signal", signal_name(rank.signal));
    entry.set("core_dumped", rank.core_dumped);
    entry.set("out_of_memory", rank.out_of_memory);
  }
  entry.set("duration_ms", rank.duration.count());
  if (!rank.error.empty()) entry.set("error", rank.error);
  if (!rank.named_ranks.empty()) entry.set("blames", rank.named_ranks);
  entry.set("tail", rank.tail);
  return entry;
}

}  // namespace

std::string report_json(const JobResult& job, const Plan& plan) {
  const RankResult* root_failure = job.launcher.empty() ? job.root_failure() : nullptr;
  Json root = Json::object(
      {{"schema", 1},
       {"job_id", job.job_id},
       {"host", plan.host},
       {"command", plan.command},
       {"outcome", name(job.outcome)},
       {"exit_code", job.exit_code()},
       {"first_failure", root_failure != nullptr ? Json(root_failure->rank) : Json()}});
  if (!job.start_error.empty()) root.set("error", job.start_error);
  if (!job.launcher.empty()) root.set("launcher", job.launcher);
  if (!job.sentences.empty()) root.set("findings", job.sentences);
  root.set("duration_ms", job.duration.count());
  root.set("restarts", job.earlier_runs.size());
  if (!job.earlier_runs.empty()) {
    Json runs = Json::array();
    for (const EarlierRun& run : job.earlier_runs) {
      runs.push_back(Json::object({{"job_id", run.job_id},
                                   {"exit_code", run.exit_code},
                                   {"first_failure", run.first_failure}}));
    }
    root.set("earlier_runs", std::move(runs));
  }
  Json ranks = Json::array();
  for (const RankResult& rank : job.ranks) {
    if (job.launcher.empty()) ranks.push_back(rank_json(rank));
  }
  root.set("ranks", std::move(ranks));
  Json replaced = Json::array();
  for (const RankResult& rank : job.replaced) replaced.push_back(rank_json(rank));
  if (plan.elastic) root.set("replaced", std::move(replaced));
  return root.dump(2) + "\n";
}

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::rank_failed:
      return "rank_failed";
    case Outcome::timed_out:
      return "timed_out";
    case Outcome::stalled:
      return "stalled";
    case Outcome::interrupted:
      return "interrupted";
    case Outcome::not_started:
      return "not_started";
  }
  return {};
}

std::string_view name(ExitReason reason) {
  switch (reason) {
    case ExitReason::not_started:
      return "not_started";
    case ExitReason::still_running:
      return "still_running";
    case ExitReason::ok:
      return "ok";
    case ExitReason::failed_by_itself:
      return "failed_by_itself";
    case ExitReason::failed_because_of_another_rank:
      return "failed_because_of_another_rank";
    case ExitReason::stopped_by_glaunch:
      return "stopped_by_glaunch";
  }
  return {};
}

}  // namespace gantry::launcher
