#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/extend/store.hpp>
#include <gantry/job/process_identity.hpp>

#include "core/authentication/keys.hpp"
#include "job/elastic_job.hpp"

namespace gantry {

// A process of a job: its rank there, and its number in the store. A replacement has the rank of
// the process before it, and a number of its own.
struct JobMember {
  int rank = 0;
  int id = 0;

  friend bool operator==(const JobMember&, const JobMember&) = default;
};

// Who serves the store of a job, and for whom this process looks for it.
struct StoreRole {
  // True if this process serves the store; false if another one does.
  bool serves = false;
  // The server that this process serves with; null: a new one.
  std::shared_ptr<StoreServer> server = {};
  std::string maker = "Communicator::world";  // the public function, for error texts
  // True without glaunch, if processes can take the places of lost ranks: see Note [Jobs without a
  // launcher].
  bool is_elastic = false;
  std::string group = "world";  // name of the job's first group, with which later names begin
  std::string label = {};       // the name that the program gave to it; empty: none

  // The role that the variables of a launcher give. glaunch serves the store of its jobs.
  static StoreRole of(const ProcessIdentity& identity) {
    return {.serves = identity.serves_rendezvous()};
  }
};

// The connection of this process to its job's store, which its groups share.
//
// Thread safety: any thread.
class JobConnection : public std::enable_shared_from_this<JobConnection> {
 public:
  // Connects, and serves the store if `role` says so. A replacement without a rank has rank −1
  // until it is invited. Throws: InvalidArgument; TimeoutError; PeerLostError.
  JobConnection(const ProcessIdentity& identity, StoreRole role, std::chrono::milliseconds timeout);
  // Leaves an elastic job without a launcher, whose groups come and go.
  ~JobConnection();
  JobConnection(const JobConnection&) = delete;
  JobConnection& operator=(const JobConnection&) = delete;

  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::string& address() const { return address_; }
  const StoreRole& role() const { return role_; }
  // The key of the links between the job's hosts, which the secret of its store gives.
  const Key& link_key() const { return link_key_; }
  // The rank that serves the store, −1 if another process does.
  int server() const { return server_rank_; }
  void note_server(int rank) { server_rank_ = rank; }
  // True if this process serves the store.
  bool serves() const { return server_ != nullptr; }
  const JobMember& self() const { return self_; }
  // Gives a replacement its rank, before others use the connection.
  void set_rank(int rank) { self_.rank = rank; }
  const std::optional<ElasticTerms>& terms() const { return terms_; }
  // True in an elastic job without a launcher.
  bool is_self_made() const { return terms_ && !has_launcher_; }
  // Notes in an elastic job that a group of its ranks was made.
  void note_formed() noexcept;
  // Throws: PeerLostError after leave().
  std::shared_ptr<StoreClient> client() const;
  // False once the store is gone.
  bool has_store() const noexcept;
  // The numbers of the lost processes, in order of their loss.
  std::vector<int> lost_ids() const;
  // The numbers of the processes whose ends in order a launcher noted.
  std::vector<int> ended_ids() const;
  // The numbers of all processes that ended or left in order.
  std::vector<int> departed_ids() const;

  // Note [Agreements]
  // Ranks learn of a death at different times, but must all decide the same. Otherwise they would
  // wait for each other in different calls. The store outlives every rank. So each rank writes its
  // outcome to a write-once register in the store. If a process has ended or is late, another rank
  // writes this into that process's register. All ranks read the same registers, and decide by
  // their contents only.

  // Writes the register `key` unless it has a value. Returns its value.
  std::string write_once(std::string_view key, std::string_view value) const;
  // Waits until the register `key` of `owner` has a value, and returns it: "lost R" if the process
  // of rank R is gone, "late R" after `timeout`.
  std::string read_register(std::string_view key, const JobMember& owner,
                            std::chrono::milliseconds timeout) const;
  // Writes `outcome` for this process, and returns the outcomes of all members, equal on all.
  std::vector<std::string> agree(std::string_view key, const std::vector<JobMember>& members,
                                 std::string_view outcome, std::chrono::milliseconds timeout) const;
  // The register of a member in agree().
  static std::string register_key(std::string_view key, const JobMember& member);

  // Makes this process lost to the others, whose waits end. The store is served on.
  void give_up() noexcept;
  // Deregisters this process: its end is not a loss. A rank that serves the store waits until the
  // others, which may still read from it, have left too. It does not wait for lost ranks, and has a
  // timeout.
  void leave() noexcept;

 private:
  std::shared_ptr<StoreClient> find() const noexcept;
  void serve(const ProcessIdentity& identity);
  // Throws: PeerLostError if another process had this rank and was lost.
  void require_not_lost() const;
  // Connects as process `id`. Throws: see the constructor.
  std::shared_ptr<StoreClient> connect_as(int id, const ProcessIdentity& identity) const;
  void await_departures(StoreClient& client) const;

  const std::chrono::milliseconds timeout_;
  const int size_;
  const bool has_launcher_;
  const std::string address_;
  StoreRole role_;
  const Key link_key_;
  std::optional<ElasticTerms> terms_;
  JobMember self_;
  std::atomic<int> server_rank_;
  std::atomic<bool> is_formed_{false};
  std::string server_problem_;  // why this process does not serve the store, as it would
  std::shared_ptr<StoreServer> server_;
  mutable std::mutex mutex_;  // guards client_
  std::shared_ptr<StoreClient> client_;
};

// The processes of a group in rank order, and the connection to their job. `job` is null without a
// store.
struct JobGroup {
  std::shared_ptr<JobConnection> job;
  std::vector<JobMember> members;

  // The rank in the group of the process with rank `job_rank` in the job, −1 if it has none.
  int index_of(int job_rank) const noexcept;
};

// The outcomes that the members of a group that forms wrote in JobConnection::agree(): kFormed,
// "lost R" or "late R" with a rank of the job, or "error TEXT". Another rank writes "lost R" for
// the lost rank R.

// Returns the ranks in `group` that the outcomes of `speakers` call `what`: "lost" or "late". A
// speaker whose own outcome is a failure is none of them: it gave up because of that, and ranks
// that waited for it meanwhile may have taken it for lost.
std::set<int> ranks_called(std::string_view what, const std::vector<std::string>& outcomes,
                           const std::vector<JobMember>& speakers, const JobGroup& group);

// Returns the first outcome that is an error of its rank's own; empty if there is none.
std::string own_error(const std::vector<std::string>& outcomes, const JobGroup& members);

bool all_formed(const std::vector<std::string>& outcomes);

}  // namespace gantry
