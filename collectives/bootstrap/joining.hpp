#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/job_connection.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "job/elastic_job.hpp"

namespace gantry {

// Note [Joining a job]
// In an elastic job a replacement process joins a group that calls Communicator::grow(). glaunch
// --elastic starts it, or any other supervisor: Note [Jobs without a launcher]. All of it goes
// through the job's store, below gantry/elastic/:
//
//   arrivals          the replacements that came: rank or −1, number in the store, version
//   growing           the process that leads a grow() now; one at a time
//   invitation/<id>   number and members of the group that process <id> joins next, or a refusal
//   group/<g>         where group number g forms: its members agree() on the outcome
//   groups            how many groups were planned
//   joined            the replacements that are in a group, or about to be
//   formed            there once the job's first group is complete
//
// Rank 0 of the group leads. Its plan is a register that is written once, so all ranks follow one
// plan, also if the leader dies. A replacement that dies while the group forms leaves the others as
// they were: the ranks of the group try again, and the other replacements wait again.
//
// A replacement of glaunch's waits without a deadline, because the group may not grow before its
// next checkpoint. It gives up when no process is left that could invite it. glaunch ends it when
// the other ranks have ended. Without a launcher it has the deadline of its call.
//
// A process may be replaced that is stopped, not dead. When it continues, its rank has another
// holder, so it cannot lead a grow().

// Where group number `number` of a job forms.
std::string formation_key(std::int64_t number);
// The outcome of a rank that could not form a group: the rank that it lost or that was late, or its
// own error. `group` maps ranks.
std::string formation_failure(const std::exception& error, const JobGroup& group);

// The group that a replacement joins.
struct Invitation {
  std::int64_t number = 0;
  std::vector<JobMember> members;
};

// A replacement that waits to join a group.
class JoiningRank {
 public:
  // Announces the process. Throws: PeerLostError.
  explicit JoiningRank(JobConnection& job);
  // Waits for the next invitation, and takes its rank from it. Throws: InvalidArgument if the group
  // refuses this process, or its arguments are not the job's; PeerLostError if no rank is left that
  // could invite it; TimeoutError without a launcher.
  Invitation await();
  // Notes that this process is in a group, or is not after all.
  void note_joined(bool joined);

 private:
  // The next invitation, if there is one.
  std::optional<Invitation> read_invitation();
  // Gives up if no process is left that could invite this one; without a launcher makes a group.
  void look_for_leaders();
  [[noreturn]] void raise_absence() const;

  JobConnection& job_;
  std::optional<SuspendAwareTimeout> countdown_;
  std::int64_t last_ = 0;
};

// The next step of the ranks of a growing group.
struct GrowPlan {
  enum class Step {
    form,     // group number `number`, of `members`
    too_few,  // not enough replacements came: `text`
    lost,     // rank `rank` of the job is lost
    refused,  // a replacement cannot join: `text`
    busy,     // another group grows: `text`
    stale,    // a rank of the group has another holder: `text`
    ended,    // ranks of the job ended and are not replaced: `text`
  };
  Step step = Step::form;
  std::int64_t number = 0;
  int rank = -1;
  std::vector<JobMember> members = {};  // in order of their ranks in the job
  std::string text = {};

  std::string str() const;
  // Throws: Error for a malformed text.
  static GrowPlan parse(const std::string& text);
};

// The leader's side of a grow(). It leads until it is destroyed.
class GrowLeader {
 public:
  // `group` is the group of the ranks that grow, to `expected` ranks.
  GrowLeader(const JobGroup& group, int expected, std::chrono::milliseconds timeout);
  ~GrowLeader();
  GrowLeader(const GrowLeader&) = delete;
  GrowLeader& operator=(const GrowLeader&) = delete;

  // Waits until enough replacements are there, or until something prevents the growth. The timeout
  // counts over all calls. Throws: PeerLostError if the store is gone.
  GrowPlan collect();
  // Invites the replacements of `plan`.
  void invite(const GrowPlan& plan);

 private:
  // Becomes the leader of the job. Returns the leader of another grow(), if there is one.
  std::optional<JobMember> acquire();
  // A plan for a group with a rank that has been replaced meanwhile.
  std::optional<GrowPlan> find_stale_rank() const;
  GrowPlan form(const std::vector<Arrival>& joining);
  std::string absence_text(const std::vector<Arrival>& came) const;

  const JobGroup group_;
  const int expected_;
  const std::chrono::milliseconds timeout_;
  SuspendAwareTimeout countdown_;
  bool is_leading_ = false;
  bool has_formed_ = false;  // a group, which may have failed
};

}  // namespace gantry
