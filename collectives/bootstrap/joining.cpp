#include "collectives/bootstrap/joining.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/bootstrap/job_entry.hpp"
#include "core/text/escaped_text.hpp"
#include "job/elastic_job.hpp"

namespace gantry {

namespace {

constexpr const char* kGrowing = "gantry/elastic/growing";
constexpr const char* kNumbers = "gantry/elastic/groups";
constexpr const char* kRefused = "refused ";
constexpr auto kPollPeriod = std::chrono::milliseconds(10);
// Polls between two looks for a rank that could invite.
constexpr int kPollsPerLook = 20;

constexpr std::array<std::pair<GrowPlan::Step, std::string_view>, 7> kSteps{{
    {GrowPlan::Step::form, "form"},
    {GrowPlan::Step::too_few, "too_few"},
    {GrowPlan::Step::lost, "lost"},
    {GrowPlan::Step::refused, "refused"},
    {GrowPlan::Step::busy, "busy"},
    {GrowPlan::Step::stale, "stale"},
    {GrowPlan::Step::ended, "ended"},
}};

std::string invitation_key(int id) { return fmt::format("gantry/elastic/invitation/{}", id); }

bool contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The processes that are lost or have ended.
std::vector<int> gone_ids(const JobConnection& job) {
  std::vector<int> gone = job.lost_ids();
  const std::vector<int> departed = job.departed_ids();
  gone.insert(gone.end(), departed.begin(), departed.end());
  return gone;
}

// The replacements that can join the group of `members` now, in the order in which they came, with
// the ranks that they get. Of two with one rank it is the first.
std::vector<Arrival> candidates(const JobConnection& job, const std::vector<JobMember>& members,
                                const std::vector<int>& gone) {
  const std::shared_ptr<StoreClient> store = job.client();
  const std::vector<int> joined = joined_ids(*store);
  std::set<int> taken;
  for (const JobMember& member : members) taken.insert(member.rank);
  std::vector<Arrival> result = arrivals(*store);
  std::erase_if(result, [&](const Arrival& one) {
    return contains(gone, one.id) || contains(joined, one.id) ||
           (one.rank >= 0 && !taken.insert(one.rank).second);
  });
  int next = 0;
  for (Arrival& one : result) {
    if (one.rank >= 0) continue;
    while (taken.contains(next)) ++next;
    one.rank = next++;
  }
  std::erase_if(result, [&](const Arrival& one) { return one.rank >= job.terms()->most; });
  return result;
}

// "rank 1", or a name of a process without a rank.
std::string name_of(const JobMember& self) {
  return self.rank < 0 ? "a process without a rank" : fmt::format("rank {}", self.rank);
}

std::string members_text(const std::vector<JobMember>& members) {
  std::string text;
  for (const JobMember& member : members) text += fmt::format(" {}:{}", member.rank, member.id);
  return text;
}

std::vector<JobMember> read_members(std::istringstream& text) {
  std::vector<JobMember> members;
  JobMember member;
  for (char colon = 0; text >> member.rank >> colon >> member.id;) members.push_back(member);
  return members;
}

}  // namespace

std::string formation_key(std::int64_t number) {
  return fmt::format("gantry/elastic/group/{}", number);
}

std::string formation_failure(const std::exception& error, const JobGroup& group) {
  const auto rank_of = [&](int index) {
    const auto at = static_cast<std::size_t>(index);
    return index >= 0 && at < group.members.size() ? group.members[at].rank : -1;
  };
  if (const auto* lost = dynamic_cast<const PeerLostError*>(&error)) {
    return fmt::format("lost {}", rank_of(lost->rank()));
  }
  if (const auto* late = dynamic_cast<const TimeoutError*>(&error)) {
    return fmt::format("late {}", rank_of(late->ranks().empty() ? -1 : late->ranks().front()));
  }
  return fmt::format("error {}", error.what());
}

JoiningRank::JoiningRank(JobConnection& job) : job_(job) {
  if (job.is_self_made()) countdown_.emplace(job.timeout());
  announce_arrival(*job.client(), {job.self().rank, job.self().id, kGroupVersion});
}

Invitation JoiningRank::await() {
  for (int polls = 0;; ++polls) {
    if (auto invitation = read_invitation()) return std::move(*invitation);
    if (polls % kPollsPerLook == 0) {
      if (job_.is_self_made()) compare_facts(job_);
      look_for_leaders();
    }
    if (countdown_ && countdown_->has_expired()) raise_absence();
    std::this_thread::sleep_for(kPollPeriod);
  }
}

std::optional<Invitation> JoiningRank::read_invitation() {
  const std::string text = job_.client()->try_get(invitation_key(job_.self().id)).value_or("0");
  if (text.starts_with(kRefused)) {
    throw InvalidArgument(
        fmt::format("{}: {}", job_.role().maker,
                    escape_control_characters(text.substr(std::string_view(kRefused).size()))));
  }
  std::istringstream fields(text);
  Invitation invitation;
  if (!(fields >> invitation.number) || invitation.number <= last_) return std::nullopt;
  last_ = invitation.number;
  invitation.members = read_members(fields);
  for (const JobMember& member : invitation.members) {
    if (member.id == job_.self().id) job_.set_rank(member.rank);
  }
  return invitation;
}

void JoiningRank::look_for_leaders() {
  const std::shared_ptr<StoreClient> store = job_.client();
  const int most = job_.terms()->most;
  const std::vector<int> gone = gone_ids(job_);
  std::vector<int> inviting = joined_ids(*store);
  for (int id = 0; !job_.is_self_made() && id < most; ++id) inviting.push_back(id);
  if (job_.is_self_made()) {
    const std::vector<int> started = started_ids(*store);
    inviting.insert(inviting.end(), started.begin(), started.end());
  }
  const bool is_alone = std::ranges::all_of(inviting, [&](int id) { return contains(gone, id); });
  if (!is_alone) return;
  if (!job_.is_self_made()) {
    throw PeerLostError(
        fmt::format("{}: rank {} replaces a rank that was lost, but no rank is left that could "
                    "take it into a group",
                    job_.role().maker, job_.self().rank));
  }
  // One of those that wait leads, so that each gets one invitation.
  const std::vector<Arrival> waiting = candidates(job_, {}, gone);
  if (static_cast<int>(waiting.size()) < most || waiting.front().id != job_.self().id) return;
  GrowLeader leader({job_.shared_from_this(), {}}, most, kPollPeriod);
  const GrowPlan plan = leader.collect();
  if (plan.step == GrowPlan::Step::form) leader.invite(plan);
}

void JoiningRank::raise_absence() const {
  const std::shared_ptr<StoreClient> store = job_.client();
  const std::vector<int> gone = gone_ids(job_);
  const int rank = job_.self().rank;
  const std::vector<Arrival> waiting = candidates(job_, {}, gone);
  const auto holder = rank < 0 ? std::nullopt : holder_of(*store, rank);
  const bool is_held =
      rank >= 0 && (holder ? !contains(gone, *holder)
                           : contains(started_ids(*store), rank) && !contains(gone, rank));
  const bool is_second =
      rank >= 0 && !is_held &&
      std::ranges::none_of(waiting, [&](const Arrival& one) { return one.id == job_.self().id; });
  std::string cause;
  if (is_held) {
    cause = fmt::format("another process of the job is rank {} and runs", rank);
  } else if (is_second) {
    cause = fmt::format("another process that came before waits to be rank {}", rank);
  } else if (!store->try_get(kGrowing).value_or("").empty()) {
    cause = "a group of the job that grows has not taken it in";
  } else if (!store->try_get(kFormedKey)) {
    cause = "the job has no group that is elastic";
  } else {
    cause = "no group of the job called grow()";
  }
  raise_timeout(
      fmt::format("{}: {} waited {} at {} to replace a lost rank, but {}", job_.role().maker,
                  name_of(job_.self()), duration_text(job_.timeout()), job_.address(), cause),
      {}, {});
}

void JoiningRank::note_joined(bool joined) {
  const std::shared_ptr<StoreClient> store = job_.client();
  if (joined) set_holder(*store, job_.self().rank, job_.self().id);
  set_joined(*store, job_.self().id, joined);
}

std::string GrowPlan::str() const {
  const auto found = std::find_if(kSteps.begin(), kSteps.end(),
                                  [&](const auto& one) { return one.first == step; });
  std::string result(found->second);
  if (step == Step::form) return result + fmt::format(" {}{}", number, members_text(members));
  if (step == Step::lost) return result + fmt::format(" {}", rank);
  return result + ' ' + text;
}

GrowPlan GrowPlan::parse(const std::string& text) {
  GrowPlan plan;
  std::istringstream fields(text);
  std::string word;
  fields >> word;
  // Written by a rank that waited for the leader.
  if (word == "late") {
    plan.step = Step::too_few;
    plan.text = "rank 0 of the group did not come";
    return plan;
  }
  const auto found = std::find_if(kSteps.begin(), kSteps.end(),
                                  [&](const auto& one) { return one.second == word; });
  if (found == kSteps.end()) {
    throw Error(fmt::format("grow: expected a plan in the job's store, but got '{}'",
                            escape_control_characters(text)));
  }
  plan.step = found->first;
  if (plan.step == Step::form) {
    fields >> plan.number;
    plan.members = read_members(fields);
  } else if (plan.step == Step::lost) {
    fields >> plan.rank;
  } else {
    std::getline(fields >> std::ws, plan.text);
  }
  return plan;
}

GrowLeader::GrowLeader(const JobGroup& group, int expected, std::chrono::milliseconds timeout)
    : group_(group), expected_(expected), timeout_(timeout), countdown_(timeout) {}

GrowLeader::~GrowLeader() {
  if (!is_leading_) return;
  try {
    const JobMember& self = group_.job->self();
    (void)group_.job->client()->compare_and_set(kGrowing, fmt::format("{} {}", self.rank, self.id),
                                                "");
  } catch (const std::exception&) {
    // The store is gone, and the job with it.
  }
}

std::optional<JobMember> GrowLeader::acquire() {
  if (is_leading_) return std::nullopt;
  const std::shared_ptr<StoreClient> store = group_.job->client();
  const JobMember& self = group_.job->self();
  const std::string mine = fmt::format("{} {}", self.rank, self.id);
  for (std::string expected;;) {
    const std::string now = store->compare_and_set(kGrowing, expected, mine);
    is_leading_ = now == mine;
    if (is_leading_) return std::nullopt;
    JobMember other;
    std::istringstream(now) >> other.rank >> other.id;
    if (!now.empty() && !contains(gone_ids(*group_.job), other.id)) return other;
    expected = now;
  }
}

std::optional<GrowPlan> GrowLeader::find_stale_rank() const {
  const std::shared_ptr<StoreClient> store = group_.job->client();
  for (const JobMember& member : group_.members) {
    const std::optional<int> holder = holder_of(*store, member.rank);
    if (!holder || *holder == member.id) continue;
    return GrowPlan{
        .step = GrowPlan::Step::stale,
        .text = fmt::format("expected the newest process of rank {} of the job, but got one that "
                            "was replaced; end it",
                            member.rank)};
  }
  return std::nullopt;
}

GrowPlan GrowLeader::form(const std::vector<Arrival>& joining) {
  GrowPlan plan;
  plan.members = group_.members;
  for (const Arrival& arrival : joining) plan.members.push_back({arrival.rank, arrival.id});
  std::sort(plan.members.begin(), plan.members.end(),
            [](const JobMember& a, const JobMember& b) { return a.rank < b.rank; });
  plan.number = group_.job->client()->add(kNumbers, 1);
  return plan;
}

std::string GrowLeader::absence_text(const std::vector<Arrival>& came) const {
  std::vector<int> missing;
  for (int rank = 0; rank < group_.job->terms()->most; ++rank) {
    const bool is_here =
        group_.index_of(rank) >= 0 ||
        std::any_of(came.begin(), came.end(), [&](const Arrival& one) { return one.rank == rank; });
    if (!is_here) missing.push_back(rank);
  }
  return fmt::format("expected {} ranks within {}, but got {}: rank(s) {} of the job did not come",
                     expected_, duration_text(timeout_), group_.members.size() + came.size(),
                     fmt::join(missing, ", "));
}

GrowPlan GrowLeader::collect() {
  using Step = GrowPlan::Step;
  const JobConnection& job = *group_.job;
  if (const auto other = acquire()) {
    return {.step = Step::busy,
            .text = fmt::format("expected one group of the job that grows, but rank {} of the job "
                                "leads another one",
                                other->rank)};
  }
  if (const auto stale = find_stale_rank()) return *stale;
  const std::size_t wanted = static_cast<std::size_t>(expected_) - group_.members.size();
  for (;;) {
    const std::vector<int> gone = gone_ids(job);
    for (const JobMember& member : group_.members) {
      if (contains(gone, member.id)) return {.step = Step::lost, .rank = member.rank};
    }
    std::vector<Arrival> joining = candidates(job, group_.members, gone);
    for (const Arrival& one : joining) {
      if (one.version == kGroupVersion) continue;
      const std::string text = fmt::format(
          "expected one version of gantry in a group, but rank {} of the job has {} "
          "and rank {} has {}",
          job.self().rank, kGroupVersion, one.rank, escape_control_characters(one.version));
      job.client()->set(invitation_key(one.id), kRefused + text);
      return {.step = Step::refused, .text = text};
    }
    // A group that fails to form again and again has a deadline, too.
    const bool is_late = has_formed_ && countdown_.has_expired();
    if (joining.size() >= wanted && !is_late) {
      joining.resize(wanted);
      has_formed_ = true;
      return form(joining);
    }
    // Nobody replaces a rank of glaunch's that ended in order.
    const auto ended = job.is_self_made() ? 0 : static_cast<int>(job.ended_ids().size());
    if (expected_ > job.terms()->most - ended) {
      return {.step = Step::ended,
              .text = fmt::format("expected {} ranks, but {} of the job's {} ranks have ended",
                                  expected_, ended, job.terms()->most)};
    }
    if (countdown_.has_expired()) return {.step = Step::too_few, .text = absence_text(joining)};
    std::this_thread::sleep_for(kPollPeriod);
  }
}

void GrowLeader::invite(const GrowPlan& plan) {
  for (const JobMember& member : plan.members) {
    if (group_.index_of(member.rank) >= 0) continue;
    group_.job->client()->set(invitation_key(member.id),
                              fmt::format("{}{}", plan.number, members_text(plan.members)));
  }
}

}  // namespace gantry
