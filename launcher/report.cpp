#include "launcher/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/escaped_text.hpp"
#include "core/regular_file.hpp"
#include "launcher/options.hpp"

namespace gantry::launcher {
namespace {

constexpr std::size_t kMaxErrorFileBytes = 16 << 20;
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
               Fate fate) {
  std::map<std::string, std::vector<int>> by_end;
  for (const RankResult& rank : job.ranks) {
    if (rank.fate() == fate) by_end[end_of(rank)].push_back(rank.rank);
  }
  if (by_end.empty()) return;
  std::string text;
  for (const auto& [end, ranks] : by_end) {
    text += fmt::format("{}rank{} {} ({})", text.empty() ? "" : ", ", ranks.size() == 1 ? "" : "s",
                        rank_list(ranks), end);
  }
  lines.push_back(fmt::format("{}: {}", title, text));
}

}  // namespace

Fate RankResult::fate() const {
  if (!started) return Fate::not_started;
  if (!ended) return Fate::still_running;
  if (stopped_by_glaunch) return Fate::stopped_by_glaunch;
  if (!failed()) return Fate::ok;
  return victim ? Fate::failed_because_of_another_rank : Fate::failed_by_itself;
}

std::string RankResult::how() const {
  if (signal == 0) return fmt::format("exited with code {}", exit_code);
  return fmt::format("was killed by {}{}{}", signal_name(signal),
                     core_dumped ? " (core dumped)" : "", out_of_memory ? " (out of memory)" : "");
}

const RankResult* JobResult::culprit() const {
  const RankResult* first = nullptr;
  for (const RankResult& rank : ranks) {
    if (!rank.failed() || rank.stopped_by_glaunch) continue;
    if (first == nullptr ||
        std::pair(rank.victim, rank.order) < std::pair(first->victim, first->order)) {
      first = &rank;
    }
  }
  return first;
}

int JobResult::exit_code() const {
  switch (outcome) {
    case Outcome::ok:
      return 0;
    case Outcome::rank_failed:
      return code_of(*culprit());
    case Outcome::timed_out:
      return kTimeoutCode;
    case Outcome::interrupted:
      return kSignalBase + signal;
    case Outcome::not_started:
      return start_error_code;
  }
  return 0;
}

void read_error_file(const std::string& path, RankResult& result) {
  FileContent file = read_regular_file(path, kMaxErrorFileBytes);
  if (!file.ok()) return;
  std::string text = std::move(file.text);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_object() && json.contains("message") && json["message"].is_string()) {
    text = json["message"].get<std::string>();
    result.victim = json.contains("kind") && json["kind"] == "peer_lost";
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  result.error =
      escape_control_characters(std::string_view(text).substr(0, kMaxErrorBytes), LineEnds::keep);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i == 2 ? ", " : "-", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::vector<std::string> describe_failure(const JobResult& job) {
  std::vector<std::string> lines;
  switch (job.outcome) {
    case Outcome::ok:
      return lines;
    case Outcome::not_started:
      return {job.start_error};
    case Outcome::timed_out:
      lines.push_back(fmt::format("the job was stopped after {} s: --timeout is over",
                                  job.duration.count() / 1000.0));
      break;
    case Outcome::interrupted:
      lines.push_back(fmt::format("the job was stopped by {}", signal_name(job.signal)));
      break;
    case Outcome::rank_failed:
      break;
  }
  if (const RankResult* culprit = job.culprit()) {
    lines.push_back(fmt::format("rank {} ({}) {}", culprit->rank, where(*culprit), culprit->how()));
    if (!culprit->error.empty()) {
      lines.push_back(fmt::format("rank {} says:\n{}", culprit->rank, indented(culprit->error)));
    }
    if (!culprit->tail.empty()) {
      std::string text =
          fmt::format("last {} lines of rank {}:", culprit->tail.size(), culprit->rank);
      if (culprit->tail.size() == 1) text = fmt::format("last line of rank {}:", culprit->rank);
      for (const std::string& line : culprit->tail) text += "\n  " + line;
      lines.push_back(text);
    }
  }
  add_ranks(lines, "failed by itself", job, Fate::failed_by_itself);
  add_ranks(lines, "failed because of another rank", job, Fate::failed_because_of_another_rank);
  add_ranks(lines, "stopped by glaunch", job, Fate::stopped_by_glaunch);
  add_ranks(lines, "still running", job, Fate::still_running);
  return lines;
}

std::string report_json(const JobResult& job, const Plan& plan) {
  const RankResult* culprit = job.culprit();
  nlohmann::ordered_json root{{"schema", 1},
                              {"job_id", job.job_id},
                              {"host", plan.host},
                              {"command", plan.command},
                              {"outcome", name(job.outcome)},
                              {"exit_code", job.exit_code()}};
  root["first_failure"] =
      culprit == nullptr ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(culprit->rank);
  if (!job.start_error.empty()) root["error"] = job.start_error;
  root["duration_ms"] = job.duration.count();
  auto& ranks = root["ranks"] = nlohmann::ordered_json::array();
  for (const RankResult& rank : job.ranks) {
    nlohmann::ordered_json entry{{"rank", rank.rank}, {"pid", rank.pid}};
    entry["device"] = rank.device ? nlohmann::ordered_json(*rank.device) : nullptr;
    entry["class"] = name(rank.fate());
    entry["exit_code"] = rank.ended ? nlohmann::ordered_json(code_of(rank)) : nullptr;
    if (rank.signal != 0) {
      entry["signal"] = signal_name(rank.signal);
      entry["core_dumped"] = rank.core_dumped;
      entry["out_of_memory"] = rank.out_of_memory;
    }
    entry["duration_ms"] = rank.duration.count();
    if (!rank.error.empty()) entry["error"] = rank.error;
    entry["tail"] = rank.tail;
    ranks.push_back(std::move(entry));
  }
  // A program may have printed bytes that are no UTF-8.
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::rank_failed:
      return "rank_failed";
    case Outcome::timed_out:
      return "timed_out";
    case Outcome::interrupted:
      return "interrupted";
    case Outcome::not_started:
      return "not_started";
  }
  return {};
}

std::string_view name(Fate fate) {
  switch (fate) {
    case Fate::not_started:
      return "not_started";
    case Fate::still_running:
      return "still_running";
    case Fate::ok:
      return "ok";
    case Fate::failed_by_itself:
      return "failed_by_itself";
    case Fate::failed_because_of_another_rank:
      return "failed_because_of_another_rank";
    case Fate::stopped_by_glaunch:
      return "stopped_by_glaunch";
  }
  return {};
}

}  // namespace gantry::launcher
