// Running jobs, from flight files.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/text/escaped_text.hpp"
#include "job/group_report.hpp"
#include "tools/top/sample.hpp"

namespace gantry::top {
namespace {

using flight::GroupReport;
using flight::OpenFile;
using flight::QueueReport;
using flight::RankReport;
using flight::View;

// A group and the file that it was read from.
struct Group {
  GroupReport report;
  const OpenFile* file = nullptr;
};

// "NVIDIA H200" of "rank 3: host pid 4711 NVIDIA H200 GPU-…"; else empty.
std::string device_name_of(const RankReport& rank) {
  const std::string mark = fmt::format(" pid {} ", rank.pid);
  const std::size_t begin = rank.device.find(mark);
  if (begin == std::string::npos) return {};
  std::string name = rank.device.substr(begin + mark.size());
  const std::size_t uuid = std::min(name.rfind(" GPU-"), name.rfind(" MIG-"));
  return uuid == std::string::npos ? name : name.substr(0, uuid);
}

std::string state_of(const RankReport& rank) {
  if (rank.process == flight::ProcessState::alive && rank.state != flight::State::running) {
    return std::string(name(rank.state));
  }
  return std::string(name(rank.process));
}

CallState call_of(const Group& group, const QueueReport& queue, const flight::Record& record) {
  const View& view = group.file->view();
  CallState call;
  call.group = group.report.group;
  call.number = flight::plain_number(static_cast<std::uint64_t>(record.call.number));
  call.text = view.text(record);
  call.algorithm = algorithm_of(view, record);
  call.bytes = record.bytes;
  call.age_ns = std::max<std::int64_t>(0, group.report.now_ns - record.enqueued_ns);
  call.is_under_way = queue.progress.is_under_way();
  return call;
}

// Whether `a` says more of its rank than `b`: the oldest call under way, else the newest call.
bool is_more_telling(const CallState& a, const CallState& b) {
  if (a.is_under_way != b.is_under_way) return a.is_under_way;
  return a.is_under_way ? a.age_ns > b.age_ns : a.age_ns < b.age_ns;
}

void add_calls(const Group& group, const RankReport& rank, RankState& state) {
  for (const QueueReport& queue : rank.queues) {
    if (!queue.current) continue;
    CallState call = call_of(group, queue, *queue.current);
    if (!state.call || is_more_telling(call, *state.call)) state.call = std::move(call);
  }
}

RankState state_of_rank(const RankReport& rank) {
  RankState state;
  state.rank = rank.job_rank.value_or(rank.rank);
  state.pid = rank.pid;
  state.start_time = rank.start_time;
  state.host = rank.host;
  state.state = state_of(rank);
  state.is_alive = rank.is_alive();
  state.device_name = device_name_of(rank);
  state.uuid = rank.uuid;
  state.allocated_bytes = rank.allocated_bytes;
  state.reserved_bytes = rank.reserved_bytes;
  return state;
}

// Whether a rank of another group is the one of `state`. A process may be several ranks of a group,
// with a device each, and a rank publishes its device a little later than itself.
bool is_rank(const RankState& state, const RankReport& rank) {
  if (state.pid != rank.pid || state.start_time != rank.start_time) return false;
  if (state.uuid.empty() && rank.uuid.empty()) {
    return state.rank == rank.job_rank.value_or(rank.rank);
  }
  return state.uuid == rank.uuid || state.uuid.empty() || rank.uuid.empty();
}

// Adds the ranks of a group to the ranks of the groups before.
void add_group(const Group& group, std::vector<RankState>& ranks) {
  std::vector<bool> is_taken(ranks.size());
  for (const RankReport& rank : group.report.ranks) {
    if (rank.pid <= 0) continue;
    std::size_t place = 0;
    while (place < is_taken.size() && (is_taken[place] || !is_rank(ranks[place], rank))) ++place;
    if (place == is_taken.size()) {
      ranks.push_back(state_of_rank(rank));
      add_calls(group, rank, ranks.back());
    } else {
      is_taken[place] = true;
      if (ranks[place].uuid.empty()) ranks[place].uuid = rank.uuid;
      add_calls(group, rank, ranks[place]);
    }
  }
}

// Groups of one job; the largest and oldest first, whose ranks are the job's.
JobState job_of(std::vector<const Group*> groups) {
  std::sort(groups.begin(), groups.end(), [](const Group* a, const Group* b) {
    return std::tuple(b->report.ranks.size(), a->report.created_ns) <
           std::tuple(a->report.ranks.size(), b->report.created_ns);
  });
  JobState job;
  job.job = groups.front()->report.job;
  job.created_ns = groups.front()->report.created_ns;
  std::vector<RankState> ranks;
  for (const Group* group : groups) {
    job.created_ns = std::min(job.created_ns, group->report.created_ns);
    add_group(*group, ranks);
  }
  // A rank of an earlier start of the job is of no interest once its successor is there.
  std::set<int> living;
  for (const RankState& rank : ranks) {
    if (rank.is_alive) living.insert(rank.rank);
  }
  for (RankState& rank : ranks) {
    if (rank.is_alive || living.count(rank.rank) == 0) job.ranks.push_back(std::move(rank));
  }
  std::sort(job.ranks.begin(), job.ranks.end(), [](const RankState& a, const RankState& b) {
    return std::tuple(a.rank, a.pid) < std::tuple(b.rank, b.pid);
  });
  return job;
}

bool shares_a_process(const GroupReport& a, const GroupReport& b) {
  return std::any_of(a.ranks.begin(), a.ranks.end(), [&](const RankReport& one) {
    return one.pid > 0 && std::any_of(b.ranks.begin(), b.ranks.end(), [&](const RankReport& other) {
             return one.pid == other.pid && one.start_time == other.start_time;
           });
  });
}

bool are_one_job(const GroupReport& a, const GroupReport& b) {
  if (!a.job.empty() || !b.job.empty()) return a.job == b.job;
  return shares_a_process(a, b);
}

std::vector<std::vector<const Group*>> by_job(const std::vector<Group>& groups) {
  std::vector<std::vector<const Group*>> jobs;
  for (const Group& group : groups) {
    const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& job) {
      return std::any_of(job.begin(), job.end(), [&](const Group* known) {
        return are_one_job(known->report, group.report);
      });
    });
    if (found == jobs.end()) {
      jobs.push_back({&group});
    } else {
      found->push_back(&group);
    }
  }
  return jobs;
}

}  // namespace

std::vector<JobState> read_jobs(std::vector<std::string>& notes) {
  const std::size_t listed = flight::list_files().size();
  const flight::Listing listing = flight::read_files();
  if (!listing.failure.empty()) {
    notes.push_back(fmt::format("no job is shown: failed to read the flight folder: {}",
                                escape_control_characters(listing.failure)));
  }
  if (listing.files.size() < listed) {
    notes.push_back(fmt::format("{} file(s) in {} are broken or of another version of gantry",
                                listed - listing.files.size(),
                                escape_control_characters(flight::folder())));
  }
  std::vector<Group> groups;
  for (const OpenFile& file : listing.files) {
    groups.push_back({flight::report_group(file), &file});
  }
  std::vector<JobState> jobs;
  for (std::vector<const Group*>& members : by_job(groups)) {
    JobState job = job_of(std::move(members));
    const bool runs = std::any_of(job.ranks.begin(), job.ranks.end(),
                                  [](const RankState& rank) { return rank.is_alive; });
    if (runs) jobs.push_back(std::move(job));
  }
  std::stable_sort(jobs.begin(), jobs.end(), [](const JobState& a, const JobState& b) {
    return a.created_ns > b.created_ns;
  });
  return jobs;
}

}  // namespace gantry::top
