// Findings from the calls of a group's ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "launcher/command/rank_list.hpp"
#include "launcher/dump/dump.hpp"

namespace gantry::launcher {

using flight::Queue;
using flight::Reason;
using flight::Record;
using flight::View;

namespace {

// Calls before the newest that are searched for differences.
constexpr std::uint64_t kSearchedCalls = 64;

const Record* find(const RankReport& rank, const View& view, Queue queue, std::uint64_t number) {
  const auto at = std::find_if(rank.calls.begin(), rank.calls.end(), [&](const Record& record) {
    return static_cast<std::uint64_t>(record.call.number) == number &&
           view.queue(record.call) == queue;
  });
  return at == rank.calls.end() ? nullptr : &*at;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks));
}

const char* plural(const std::vector<int>& ranks, const char* one, const char* many) {
  return ranks.size() == 1 ? one : many;
}

// "#41 all_reduce sum f32[4096]".
std::string call_text(const View& view, const std::vector<RankReport>& ranks,
                      std::uint64_t number) {
  for (const RankReport& rank : ranks) {
    if (const Record* record = find(rank, view, Queue::collective, number)) {
      return fmt::format("#{} {}", number, view.text(*record));
    }
  }
  return fmt::format("#{}", number);
}

// Why the group is of no use any more, if it is.
std::string loss_text(const View& view, const std::vector<RankReport>& ranks) {
  const flight::Header& header = view.header();
  const auto diagnosis =
      flight::Diagnosis::unpack(header.diagnosis.load(std::memory_order_acquire));
  std::string text;
  const flight::Detail detail = flight::Detail::of(view, diagnosis);
  switch (diagnosis.reason) {
    case Reason::none:
      return {};
    case Reason::died:
      text = fmt::format("rank {} died", diagnosis.rank);
      break;
    case Reason::left:
      text = fmt::format("rank {} left while others still called", diagnosis.rank);
      break;
    case Reason::aborted:
      text = fmt::format("rank {} aborted", diagnosis.rank);
      break;
    case Reason::timed_out:
      return detail.text.empty() ? fmt::format("rank {} did not come in time", diagnosis.rank)
                                 : detail.text;
    case Reason::mismatch:
      return (detail.text.empty() ? "ranks made different calls" : detail.text) +
             "; the group is broken";
    case Reason::lost:
      text = fmt::format("rank {} was lost", diagnosis.rank);
      break;
  }
  if (diagnosis.call != 0) {
    // Another rank may have been in a call that the lost rank never made.
    const auto lost = std::ranges::find(ranks, diagnosis.rank, &RankReport::rank);
    const bool has_called =
        lost == ranks.end() || lost->queue(Queue::collective).enqueued >= diagnosis.call;
    text += fmt::format(" {} {}", has_called ? "during" : "before it called",
                        call_text(view, ranks, diagnosis.call));
  }
  return text + "; the group is broken";
}

// Ranks that are said to have come to what the ranks wait in.
std::vector<int> waiting_ranks(const View& view, const std::vector<RankReport>& ranks,
                               const flight::Diagnosis& diagnosis,
                               const std::vector<int>& missing) {
  const int author = diagnosis.author;
  std::vector<int> waiting;
  for (const RankReport& rank : ranks) {
    if (std::find(missing.begin(), missing.end(), rank.rank) != missing.end()) continue;
    const bool has_come = diagnosis.call != 0
                              ? rank.queue(Queue::collective).enqueued >= diagnosis.call
                              : author < static_cast<int>(ranks.size()) &&
                                    view.rank(rank.rank).fence >= view.rank(author).fence;
    if (has_come || rank.rank == author) waiting.push_back(rank.rank);
  }
  return waiting;
}

// The ranks that missed the deadline and the ranks that waited, whatever their state is now.
void diagnose_lateness(const View& view, const std::vector<RankReport>& ranks,
                       std::vector<std::string>& lines) {
  const flight::Header& header = view.header();
  const auto diagnosis =
      flight::Diagnosis::unpack(header.diagnosis.load(std::memory_order_acquire));
  const flight::Detail detail = flight::Detail::of(view, diagnosis);
  if (diagnosis.reason != Reason::timed_out || detail.ranks.empty() || detail.calls.size() < 2) {
    return;
  }
  const std::string& call = detail.calls[0];
  const std::string& how = detail.calls[1];
  const int author = diagnosis.author;
  if (how == flight::kLateToReceive || how == flight::kLateToSend) {
    lines.push_back(fmt::format("rank {} waits in {}; rank {} is not {} it", author, call,
                                detail.ranks.front(),
                                how == flight::kLateToReceive ? "receiving from" : "sending to"));
    return;
  }
  const std::vector<int> waiting = waiting_ranks(view, ranks, diagnosis, detail.ranks);
  const auto add = [&](const std::vector<int>& missing, const std::string& what) {
    if (missing.empty()) return;
    lines.push_back(fmt::format("{} {} {}; {} {} for {}", ranks_text(missing), what, call,
                                ranks_text(waiting), plural(waiting, "waits", "wait"),
                                plural(missing, "it", "them")));
  };
  std::vector<int> stopped, absent;
  for (const int rank : detail.ranks) {
    if (rank >= static_cast<int>(ranks.size())) continue;
    const bool is_stopped = ranks[static_cast<std::size_t>(rank)].process == ProcessState::stopped;
    (is_stopped ? stopped : absent).push_back(rank);
  }
  add(absent, fmt::format("{} not {}", plural(absent, "has", "have"),
                          how == flight::kLateToFinish ? "finished" : "called"));
  add(stopped, fmt::format("{} stopped and {} not {}", plural(stopped, "is", "are"),
                           plural(stopped, "has", "have"),
                           how == flight::kLateToFinish ? "finished" : "called"));
}

// The newest collective of which two ranks say different things.
void diagnose_differences(const View& view, const std::vector<RankReport>& ranks,
                          std::vector<std::string>& lines) {
  std::uint64_t newest = 0;
  for (const RankReport& rank : ranks) {
    newest = std::max(newest, rank.queue(Queue::collective).enqueued);
  }
  for (std::uint64_t back = 0; back < std::min(newest, kSearchedCalls); ++back) {
    const std::uint64_t number = newest - back;
    const Record* first = nullptr;
    int first_rank = 0;
    for (const RankReport& rank : ranks) {
      const Record* record = find(rank, view, Queue::collective, number);
      if (record == nullptr) continue;
      if (first == nullptr) {
        first = record;
        first_rank = rank.rank;
      } else if (std::memcmp(&first->call, &record->call, sizeof first->call) != 0) {
        lines.push_back(fmt::format(
            "ranks {} and {} made different calls as #{}: rank {} called {}, rank {} called {}",
            first_rank, rank.rank, number, first_rank, view.text(*first), rank.rank,
            view.text(*record)));
        return;
      }
    }
  }
}

// Which living rank waits for which in the furthest collective.
void diagnose_collectives(const View& view, const std::vector<RankReport>& ranks,
                          std::vector<std::string>& lines) {
  std::uint64_t furthest = 0;
  for (const RankReport& rank : ranks) {
    const flight::Progress& progress = rank.queue(Queue::collective).progress;
    if (rank.is_alive() && progress.is_under_way()) {
      furthest = std::max(furthest, progress.started);
    }
  }
  if (furthest == 0) return;
  std::vector<int> inside, outside, queued, stopped, gone, past;
  for (const RankReport& rank : ranks) {
    const QueueReport& calls = rank.queue(Queue::collective);
    const flight::Progress& progress = calls.progress;
    // A graph runs a call again that has finished before.
    const bool has_finished = progress.finished >= furthest && !progress.is_under_way();
    if (progress.started > furthest || has_finished) {
      past.push_back(rank.rank);
    } else if (!rank.is_alive()) {
      gone.push_back(rank.rank);
    } else if (progress.started == furthest) {
      inside.push_back(rank.rank);
    } else if (rank.process == ProcessState::stopped) {
      stopped.push_back(rank.rank);
    } else {
      (calls.enqueued >= furthest ? queued : outside).push_back(rank.rank);
    }
  }
  const std::string call = call_text(view, ranks, furthest);
  const auto add = [&](const std::vector<int>& missing, const std::string& what) {
    if (missing.empty()) return;
    lines.push_back(fmt::format("{} {}; {} {} for {}", ranks_text(missing), what,
                                ranks_text(inside), plural(inside, "waits", "wait"),
                                plural(missing, "it", "them")));
  };
  add(outside, fmt::format("{} not called {}", plural(outside, "has", "have"), call));
  add(queued, fmt::format("{} called {}, but {} not come to it, or is past it",
                          plural(queued, "has", "have"), call,
                          plural(queued, "its device has", "their devices have")));
  add(stopped, fmt::format("{} stopped and {} not started {}", plural(stopped, "is", "are"),
                           plural(stopped, "has", "have"), call));
  add(gone, fmt::format("ended without {}", call));
  if (outside.empty() && queued.empty() && stopped.empty() && gone.empty()) {
    lines.push_back(past.empty()
                        ? fmt::format("all ranks are in {}", call)
                        : fmt::format("{} {} still in {}, which {} finished", ranks_text(inside),
                                      plural(inside, "is", "are"), call,
                                      ranks_text(past) + plural(past, " has", " have")));
  }
}

bool is_in_a_call(const RankReport& rank) {
  return rank.is_alive() &&
         std::any_of(rank.queues.begin(), rank.queues.end(),
                     [](const QueueReport& calls) { return calls.progress.is_under_way(); });
}

// Sends and receives whose other side is not there.
void diagnose_messages(const View& view, const std::vector<RankReport>& ranks,
                       std::vector<std::string>& lines) {
  for (const RankReport& rank : ranks) {
    if (!rank.is_alive()) continue;
    for (const auto& [mine, theirs] :
         {std::pair(Queue::send, Queue::recv), std::pair(Queue::recv, Queue::send)}) {
      const QueueReport& calls = rank.queue(mine);
      if (!calls.progress.is_under_way() || !calls.current) continue;
      const flight::Call& call = calls.current->call;
      if (call.root < 0 || call.root >= static_cast<int>(ranks.size())) continue;
      const RankReport& peer = ranks[static_cast<std::size_t>(call.root)];
      const QueueReport& other = peer.queue(theirs);
      const bool meets =
          other.progress.is_under_way() && other.current && other.current->call.root == rank.rank;
      if (meets) continue;
      lines.push_back(fmt::format("rank {} waits in #{} {}; rank {} {}", rank.rank,
                                  flight::plain_number(calls.progress.started), view.text(call),
                                  peer.rank,
                                  !peer.is_alive()      ? "has ended"
                                  : mine == Queue::send ? "is not receiving from it"
                                                        : "is not sending to it"));
    }
  }
}

}  // namespace

std::vector<std::string> findings(const View& view, const std::vector<RankReport>& ranks) {
  std::vector<std::string> lines;
  diagnose_lateness(view, ranks, lines);
  if (std::string loss = loss_text(view, ranks); !loss.empty()) lines.push_back(std::move(loss));
  diagnose_differences(view, ranks, lines);
  diagnose_collectives(view, ranks, lines);
  diagnose_messages(view, ranks, lines);
  // Of a deadline that has just passed, ranks may wait still.
  std::vector<std::string> different;
  for (std::string& line : lines) {
    if (std::find(different.begin(), different.end(), line) == different.end()) {
      different.push_back(std::move(line));
    }
  }
  return different;
}

std::vector<std::string> diagnose(const View& view, const std::vector<RankReport>& ranks) {
  std::vector<std::string> lines = findings(view, ranks);
  if (!lines.empty()) return lines;
  if (std::all_of(ranks.begin(), ranks.end(),
                  [](const RankReport& rank) { return rank.process == ProcessState::absent; })) {
    lines.emplace_back("no rank has come yet");
  } else if (std::none_of(ranks.begin(), ranks.end(),
                          [](const RankReport& rank) { return rank.is_alive(); })) {
    lines.emplace_back("every rank has ended");
  } else if (std::any_of(ranks.begin(), ranks.end(), is_in_a_call)) {
    lines.emplace_back("calls are under way whose other sides are there");
  } else {
    lines.emplace_back("no call is under way");
  }
  return lines;
}

}  // namespace gantry::launcher
