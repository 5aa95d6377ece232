// Groups of survivors, and of survivors with the replacements of lost ranks.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/bootstrap/job_connection.hpp"
#include "collectives/bootstrap/job_entry.hpp"
#include "collectives/bootstrap/joining.hpp"
#include "collectives/communicator/impl.hpp"

namespace gantry {

namespace {

using std::chrono::milliseconds;

// Beyond the leader's own deadline, for its plan.
constexpr milliseconds kPlanDelay = std::chrono::seconds(30);

bool is_elastic(const JobGroup& group) { return group.job && group.job->terms(); }

[[noreturn]] void raise_lost_member(const std::string& op, int rank, const JobGroup& group) {
  raise_lost(
      fmt::format("{}: rank {} is lost; call shrink() with all ranks that are lost", op, rank),
      rank, {group.members.at(static_cast<std::size_t>(rank)).rank});
}

// Throws if the outcomes of `speakers` call ranks of `group`, but not of `known`, lost or late.
void require_members(const std::string& op, const std::vector<std::string>& outcomes,
                     const std::vector<JobMember>& speakers, const JobGroup& group,
                     const std::set<int>& known = {}) {
  const auto news_of = [&](std::string_view what) {
    std::set<int> ranks = ranks_called(what, outcomes, speakers, group);
    std::erase_if(ranks, [&](int rank) { return known.contains(rank); });
    return ranks;
  };
  const std::set<int> lost = news_of("lost");
  if (!lost.empty()) raise_lost_member(op, *lost.begin(), group);
  const std::set<int> late = news_of("late");
  if (late.empty()) return;
  std::vector<int> of_job;
  for (const int rank : late) {
    of_job.push_back(group.members[static_cast<std::size_t>(rank)].rank);
  }
  raise_timeout(fmt::format("{}: rank(s) {} did not come within {} (GANTRY_COLL_TIMEOUT sets the "
                            "deadline)",
                            op, fmt::join(late, ", "), duration_text(group.job->timeout())),
                {late.begin(), late.end()}, of_job);
}

// What one rank wants; all ranks must want the same.
std::string wish_text(int expected, milliseconds timeout) {
  return fmt::format("grow({}, {} ms)", expected, timeout.count());
}

[[noreturn]] void raise_no_growth(const GrowPlan& plan, const JobGroup& group) {
  const std::string text = "grow: " + plan.text;
  switch (plan.step) {
    case GrowPlan::Step::form:
      break;
    case GrowPlan::Step::lost:
      raise_lost_member("grow", group.index_of(plan.rank), group);
    case GrowPlan::Step::too_few:
      raise_timeout(text, {}, {});
    case GrowPlan::Step::refused:
      throw InvalidArgument(text);
    case GrowPlan::Step::busy:
      throw Error(text);
    case GrowPlan::Step::stale:
    case GrowPlan::Step::ended:
      throw PeerLostError(text);
  }
  throw Error(text);
}

// The store of a job without a launcher ends with the process that serves it.
[[noreturn]] void raise_no_store(const JobConnection& job) {
  const std::string server =
      job.server() < 0 ? "the process that served it"
                       : fmt::format("rank {} of the job, which served it,", job.server());
  throw PeerLostError(fmt::format(
      "grow: failed to reach the job's store at {}: {} is lost, and no process can join without "
      "it; end all ranks and start them again, or serve the store by another process",
      job.address(), server));
}

// The key of a call of grow(). A process that was replaced may call for a group of the same name.
std::string grow_key(const JobGroup& group, const std::string& name, int number) {
  std::string ids;
  for (const JobMember& member : group.members) ids += fmt::format("{} ", member.id);
  return fmt::format("gantry/elastic/grow/{}/{:x}/{}", name, std::hash<std::string>{}(ids), number);
}

}  // namespace

Communicator Communicator::shrink(const std::vector<int>& failed) const {
  Impl& mine = impl("shrink");
  const std::lock_guard lock(mine.mutex);
  const std::set<int> gone(failed.begin(), failed.end());
  for (const int rank : gone) {
    if (rank < 0 || rank >= size()) {
      throw InvalidArgument(
          fmt::format("shrink: expected ranks from 0 to {}, but got {}", size() - 1, rank));
    }
    if (rank == this->rank()) {
      throw InvalidArgument(
          fmt::format("shrink: rank {} is among the failed ranks that it gave", rank));
    }
  }
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!gone.contains(rank)) ranks.push_back(rank);
  }
  mine.ledger.abandon();
  const int number = ++mine.members.shrinks;
  const std::string name = fmt::format("{}.shrink{}", mine.members.name, number);
  const auto make = [&] {
    // The store or MPI may be unusable after a loss; shared memory is not.
    std::unique_ptr<Bootstrap> bootstrap =
        mine.members.control ? make_shared_memory_bootstrap(*mine.members.control, ranks,
                                                            static_cast<std::uint64_t>(number))
                             : mine.members.bootstrap->subset(ranks, name);
    GroupSeed seed =
        mine.members.subgroup(ranks, name, std::move(bootstrap), "shrink, making " + name);
    if (mine.members.is_named) seed.label = fmt::format("{}.shrink{}", mine.members.label, number);
    return std::make_shared<Impl>(std::move(seed));
  };
  // Without its store a job cannot grow, and needs no agreement.
  const JobGroup& group = mine.members.job_group;
  if (!is_elastic(group) || !group.job->has_store()) {
    return Communicator(Impl::until_left(make()));
  }
  return Communicator(Impl::until_left(mine.agree_on_subgroup(ranks, name, make)));
}

// Another rank may be lost meanwhile. All ranks must learn of it in this call: Note [Agreements].
std::shared_ptr<Communicator::Impl> Communicator::Impl::agree_on_subgroup(
    const std::vector<int>& ranks, const std::string& group,
    const std::function<std::shared_ptr<Impl>()>& make) {
  const JobGroup subgroup = members.job_group_of(ranks);
  std::shared_ptr<Impl> made;
  std::exception_ptr failure;
  std::string outcome = kFormed;
  try {
    made = make();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    outcome = formation_failure(error, subgroup);
  }
  std::vector<std::string> outcomes;
  try {
    outcomes = subgroup.job->agree("gantry/elastic/shrunk/" + group, subgroup.members, outcome,
                                   members.timeout.get());
  } catch (const PeerLostError&) {
    // The store is lost: each rank has its own outcome.
    if (failure) std::rethrow_exception(failure);
    return made;
  }
  if (all_formed(outcomes)) return made;
  if (made) made->abort();
  // Between machines the ranks may know of different losses.
  std::set<int> known;
  for (int rank = 0; rank < members.self.size; ++rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) known.insert(rank);
  }
  require_members("shrink", outcomes, subgroup.members, members.job_group, known);
  // A loss that nobody confirms is of a rank that gave up; its number is that of the new group.
  if (failure && !outcome.starts_with("lost ")) std::rethrow_exception(failure);
  const std::string text = own_error(outcomes, subgroup);
  throw Error(fmt::format("shrink: failed to make {}: {}", group,
                          text.empty() ? "another rank gave up" : text));
}

std::shared_ptr<Communicator::Impl> Communicator::Impl::form(const JobGroup& group,
                                                             std::int64_t number, Device device,
                                                             const ProcessIdentity& identity,
                                                             const std::string& maker,
                                                             std::vector<std::string>& outcomes) {
  const std::string key = formation_key(number);
  const StoreRole& role = group.job->role();
  ProcessIdentity who = identity;
  who.rank = group.index_of(group.job->self().rank);
  who.world_size = static_cast<int>(group.members.size());
  std::shared_ptr<Impl> made;
  std::exception_ptr failure;
  std::string outcome = kFormed;
  try {
    GroupSeed seed{.identity = std::move(who),
                   .device = device,
                   .bootstrap = make_formation_bootstrap(group, key),
                   .name = fmt::format("{}.grow{}", role.group, number),
                   .maker = maker};
    if (!role.label.empty()) seed.label = fmt::format("{}.grow{}", role.label, number);
    made = std::make_shared<Impl>(std::move(seed));
  } catch (const std::exception& error) {
    failure = std::current_exception();
    outcome = formation_failure(error, group);
  }
  outcomes = group.job->agree(key, group.members, outcome, group.job->timeout());
  if (all_formed(outcomes)) return made;
  if (made) made->abort();
  if (outcome.starts_with("error ")) std::rethrow_exception(failure);
  return nullptr;
}

std::shared_ptr<Communicator::Impl> Communicator::Impl::join(std::shared_ptr<JobConnection> job,
                                                             const ProcessIdentity& identity,
                                                             Device device) {
  JobGroup group{std::move(job), {}};
  if (group.job->is_self_made()) read_serving_rank(*group.job);
  JoiningRank self(*group.job);
  for (;;) {
    Invitation invitation = self.await();
    group.members = std::move(invitation.members);
    std::vector<std::string> outcomes;
    self.note_joined(true);  // before the others can see that it is
    if (auto made =
            form(group, invitation.number, device, identity, group.job->role().maker, outcomes)) {
      if (group.job->is_self_made()) group.job->note_formed();
      return made;
    }
    self.note_joined(false);
  }
}

Communicator Communicator::grow(int expected, std::chrono::milliseconds timeout) const {
  Impl& mine = impl("grow");
  const std::lock_guard lock(mine.mutex);
  if (!is_elastic(mine.members.job_group)) {
    const std::string& source = mine.members.identity.source;
    throw NotSupported(fmt::format(
        "grow: expected a job of glaunch --elastic, or a group with ConnectOptions::elastic or "
        "GANTRY_ELASTIC, but this process was started by {}",
        mine.members.job_group.job && source == "glaunch" ? "glaunch without that option"
                                                          : source));
  }
  if (timeout.count() < 0) {
    throw InvalidArgument(
        fmt::format("grow: expected a timeout of 0 or more, but got {} ms", timeout.count()));
  }
  const JobConnection& job = *mine.members.job_group.job;
  if (expected <= size() || expected > job.terms()->most) {
    throw InvalidArgument(fmt::format(
        "grow: expected more than the {} rank(s) of the group, and at most the {} of the job, but "
        "got {}",
        size(), job.terms()->most, expected));
  }
  try {
    return Communicator(
        Impl::until_left(mine.grow(expected, timeout.count() == 0 ? job.timeout() : timeout)));
  } catch (const PeerLostError&) {
    if (job.has_store()) throw;
    raise_no_store(job);
  }
}

std::shared_ptr<Communicator::Impl> Communicator::Impl::grow(int expected, milliseconds timeout) {
  const JobGroup& group = members.job_group;
  const JobConnection& job = *group.job;
  const std::string call = grow_key(group, members.name, members.grows + 1);
  const std::string wish = wish_text(expected, timeout);
  try {
    rendezvous(HostCall::grow);
  } catch (const CollectiveMismatch&) {
    throw;  // on every rank
  } catch (const std::exception& error) {
    // The other ranks must not wait for this one.
    if (job.has_store()) {
      (void)job.write_once(JobConnection::register_key(call, job.self()),
                           formation_failure(error, group));
    }
    throw;
  }
  ++members.grows;
  const std::vector<std::string> wishes =
      job.agree(call, group.members, wish, members.timeout.get());
  require_members("grow", wishes, group.members, group);
  // All ranks have read what they wrote in the call before.
  for (const std::string& key : members.old_registers) job.client()->erase(key);
  members.old_registers = {JobConnection::register_key(call, job.self())};
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank] == wishes[0]) continue;
    throw InvalidArgument(
        fmt::format("grow: expected the same call on every rank, but rank 0 called {} and rank {} "
                    "called {}",
                    wishes[0], rank, wishes[rank]));
  }
  std::optional<GrowLeader> leader;
  if (members.self.rank == 0) leader.emplace(group, expected, timeout);
  for (int attempt = 1;; ++attempt) {
    const std::string plan_key = fmt::format("{}/plan{}", call, attempt);
    if (leader) {
      members.old_registers.push_back(plan_key);
      const GrowPlan plan = leader->collect();
      if (job.write_once(plan_key, plan.str()) == plan.str() && plan.step == GrowPlan::Step::form) {
        leader->invite(plan);
      }
    }
    const GrowPlan plan =
        GrowPlan::parse(job.read_register(plan_key, group.members.front(), timeout + kPlanDelay));
    if (plan.step != GrowPlan::Step::form) raise_no_growth(plan, group);
    std::vector<std::string> outcomes;
    const JobGroup grown{group.job, plan.members};
    if (auto made =
            form(grown, plan.number, members.self.device, members.identity, "grow", outcomes)) {
      if (members.timeout.is_set()) made->members.timeout.set(members.timeout.of_group());
      return made;
    }
    if (const std::string text = own_error(outcomes, grown); !text.empty()) {
      throw Error("grow: failed to form a group: " + text);
    }
    // A replacement that was lost is replaced itself.
    require_members("grow", outcomes, grown.members, group);
  }
}

}  // namespace gantry
