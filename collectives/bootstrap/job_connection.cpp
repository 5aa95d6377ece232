#include "collectives/bootstrap/job_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/bootstrap/job_entry.hpp"
#include "core/files/own_folder.hpp"
#include "core/files/socket.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "job/store/admission.hpp"
#include "job/store/client_connection.hpp"
#include "job/store/handshake.hpp"
#include "job/store/membership.hpp"

namespace gantry {

namespace {

// For an answer of a server that was started before this process.
constexpr std::chrono::milliseconds kLauncherTimeout = std::chrono::seconds(60);
constexpr auto kLeaveTimeout = std::chrono::seconds(10);
// After a loss the store no longer waits for a key, so readers poll.
constexpr auto kShortestPoll = std::chrono::milliseconds(1);
constexpr auto kLongestPoll = std::chrono::milliseconds(20);

std::string left_key(int rank) { return fmt::format("gantry/left/{}", rank); }

}  // namespace

JobConnection::JobConnection(const ProcessIdentity& identity, StoreRole role,
                             std::chrono::milliseconds timeout)
    : timeout_(timeout),
      size_(identity.world_size),
      has_launcher_(identity.source == "glaunch"),
      address_(identity.rendezvous),
      role_(std::move(role)),
      link_key_(store::link_key(identity.rendezvous_token)),
      terms_(elastic_terms(identity)),
      self_{identity.rank, terms_ ? terms_->id_of(identity.rank) : identity.rank},
      server_rank_(has_launcher_ ? -1 : 0) {
  const SocketAddress address = parse_socket_address(address_);
  if (address.kind == SocketAddress::Kind::tcp && address.port == 0) {
    throw InvalidArgument(
        fmt::format("GANTRY_RDZV: expected a port that all ranks know, but got '{}'", address_));
  }
  // Checked on every rank, so that all throw instead of waiting for the serving rank.
  store::require_token(address, identity.rendezvous_token, "GANTRY_RDZV_TOKEN");
  const bool is_in_own_folder = address.kind == SocketAddress::Kind::unix_path &&
                                address.name.starts_with(own_folder() + "/");
  if (is_in_own_folder) prepare_own_folder();
  if (role_.serves) serve(identity);
  if (!role_.is_elastic) {
    client_ = connect_as(self_.id, identity);
    if (!has_launcher_) require_not_lost();
    return;
  }
  JobEntry entry = enter_job([&](int id) { return connect_as(id, identity); }, self_.rank, size_);
  terms_ = ElasticTerms{.fewest = 1, .most = size_, .replacement = entry.replacement};
  self_.id = terms_->id_of(self_.rank);
  client_ = std::move(entry.client);
  if (server_) note_serving_rank(*client_, self_.rank);
}

JobConnection::~JobConnection() {
  if (is_self_made()) leave();
}

void JobConnection::require_not_lost() const {
  // The store tells of losses before it replies.
  (void)client_->try_get(kFormedKey);
  const std::vector<int> lost = client_->lost_ranks();
  if (std::ranges::find(lost, self_.id) == lost.end()) return;
  throw PeerLostError(
      fmt::format(
          "{}: rank {} of the job at {} was lost before; only in an elastic group a process "
          "can take its place (ConnectOptions::elastic)",
          role_.maker, self_.rank, address_),
      self_.rank);
}

void JobConnection::serve(const ProcessIdentity& identity) {
  if (role_.server) {
    server_ = role_.server;
    return;
  }
  const StoreServerOptions options{.address = address_, .token = identity.rendezvous_token};
  try {
    server_ = std::make_shared<StoreServer>(options);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const NotSupported&) {
    throw;
  } catch (const Error& error) {
    // Another process may serve the store of an elastic job.
    if (!role_.is_elastic) throw;
    server_problem_ = error.what();
  }
}

std::shared_ptr<StoreClient> JobConnection::connect_as(int id,
                                                       const ProcessIdentity& identity) const {
  // glaunch listens before it starts a rank.
  const auto timeout = has_launcher_ ? std::min(timeout_, kLauncherTimeout) : timeout_;
  const std::string self =
      self_.rank < 0 ? "a process without a rank" : fmt::format("rank {}", self_.rank);
  try {
    return std::make_shared<StoreClient>(StoreClientOptions{.address = address_,
                                                            .rank = id,
                                                            .token = identity.rendezvous_token,
                                                            .connect_timeout = timeout});
  } catch (const store::UnprovenServerError& error) {
    raise_timeout(fmt::format("{}: {} waited {} for the job's store at {}, but {}", role_.maker,
                              self, duration_text(timeout), address_, error.reason()),
                  {}, {});
  } catch (const TimeoutError&) {
    if (has_launcher_) {
      throw TimeoutError(fmt::format(
          "{}: {} waited {}, but the job's store at {}, which glaunch serves, did not answer; "
          "unset GANTRY_* if glaunch has not started this process",
          role_.maker, self, duration_text(timeout), address_));
    }
    if (role_.is_elastic) {
      raise_timeout(
          fmt::format("{}: {} waited {}, but no process served the job's store at {}{}{}",
                      role_.maker, self, duration_text(timeout), address_,
                      server_problem_.empty() ? "" : "; this process failed to serve it: ",
                      server_problem_),
          {}, {});
    }
    raise_timeout(
        fmt::format("{}: {} waited {}, but rank(s) 0, which serves the job's store at {}, did "
                    "not come (GANTRY_COLL_TIMEOUT sets the deadline)",
                    role_.maker, self, duration_text(timeout), address_),
        {0}, {0});
  }
}

void JobConnection::note_formed() noexcept {
  if (!terms_) return;
  is_formed_ = true;
  try {
    client()->set(kFormedKey, "");
  } catch (const std::exception& error) {
    // The group is made. Its operations tell of a loss.
    logging::debug(fmt::format("noting a group in the job's store: {}", error.what()));
  }
}

bool JobConnection::has_store() const noexcept {
  const std::shared_ptr<StoreClient> client = find();
  return client && client->connected();
}

std::shared_ptr<StoreClient> JobConnection::find() const noexcept {
  const std::lock_guard lock(mutex_);
  return client_;
}

std::shared_ptr<StoreClient> JobConnection::client() const {
  std::shared_ptr<StoreClient> client = find();
  if (!client) throw PeerLostError("Communicator: this rank has left the job's store");
  return client;
}

std::vector<int> JobConnection::lost_ids() const {
  const std::shared_ptr<StoreClient> client = find();
  // Querying one rank is cheaper, and usually none is lost.
  return client && client->lost_rank() >= 0 ? client->lost_ranks() : std::vector<int>();
}

std::vector<int> JobConnection::ended_ids() const {
  std::vector<int> ids;
  std::istringstream ended(client()->try_get(store::kEndedKey).value_or(""));
  for (int id = 0; ended >> id;) ids.push_back(id);
  return ids;
}

std::vector<int> JobConnection::departed_ids() const {
  std::vector<int> ids = ended_ids();
  if (!is_self_made()) return ids;
  const std::vector<int> departed = gantry::departed_ids(*client());
  ids.insert(ids.end(), departed.begin(), departed.end());
  return ids;
}

std::string JobConnection::write_once(std::string_view key, std::string_view value) const {
  return client()->compare_and_set(key, "", value);
}

std::string JobConnection::read_register(std::string_view key, const JobMember& owner,
                                         std::chrono::milliseconds timeout) const {
  const std::shared_ptr<StoreClient> store = client();
  const auto contains = [&](const std::vector<int>& ids) {
    return std::find(ids.begin(), ids.end(), owner.id) != ids.end();
  };
  SuspendAwareTimeout countdown(timeout);
  auto pause = kShortestPoll;
  for (;;) {
    if (const auto value = store->try_get(key)) return *value;
    const bool looks_closely = pause == kLongestPoll;
    if (contains(lost_ids()) || (looks_closely && contains(departed_ids()))) {
      return write_once(key, fmt::format("lost {}", owner.rank));
    }
    if (countdown.has_expired()) return write_once(key, fmt::format("late {}", owner.rank));
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPoll);
  }
}

std::vector<std::string> JobConnection::agree(std::string_view key,
                                              const std::vector<JobMember>& members,
                                              std::string_view outcome,
                                              std::chrono::milliseconds timeout) const {
  (void)write_once(register_key(key, self_), outcome);
  std::vector<std::string> outcomes;
  for (const JobMember& member : members) {
    outcomes.push_back(read_register(register_key(key, member), member, timeout));
  }
  return outcomes;
}

std::string JobConnection::register_key(std::string_view key, const JobMember& member) {
  return fmt::format("{}/{}", key, member.id);
}

void JobConnection::give_up() noexcept {
  try {
    if (server_) {
      server_->mark_lost(self_.id);
    } else if (const std::shared_ptr<StoreClient> client = find()) {
      client->abandon();
    }
  } catch (const std::exception& error) {
    logging::debug(fmt::format("giving up in the job's store: {}", error.what()));
  }
}

void JobConnection::leave() noexcept {
  try {
    if (const std::shared_ptr<StoreClient> client = find()) {
      client->set(left_key(self_.id), "");
      if (is_self_made()) {
        note_departed(*client, self_.id);
        if (server_ && is_formed_) await_departures(*client);
      }
      const auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
      for (int rank = 0; server_ && !is_self_made() && rank < size_; ++rank) {
        (void)client->get(left_key(rank), std::chrono::duration_cast<std::chrono::milliseconds>(
                                              std::max(deadline - std::chrono::steady_clock::now(),
                                                       std::chrono::steady_clock::duration(0))));
      }
    }
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving the job's store: {}", error.what()));
  }
  const std::lock_guard lock(mutex_);
  client_.reset();
}

// A get() would end at the first loss, after which the job goes on.
void JobConnection::await_departures(StoreClient& client) const {
  const auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::vector<int> lost = server_->lost_ranks();
    const std::vector<int> joined = joined_ids(client);
    std::vector<int> others = server_->connected_ranks();
    std::erase_if(others, [&](int id) {
      const bool is_waiting = id >= size_ && std::ranges::find(joined, id) == joined.end();
      return id == self_.id || is_waiting || std::ranges::find(lost, id) != lost.end();
    });
    if (others.empty()) return;
    std::this_thread::sleep_for(kShortestPoll);
  }
}

int JobGroup::index_of(int job_rank) const noexcept {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const JobMember& member) { return member.rank == job_rank; });
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

namespace {

// "lost" and 3 of "lost 3"; −1 if there is no rank.
std::pair<std::string, int> read_outcome(const std::string& outcome) {
  std::istringstream fields(outcome);
  std::pair<std::string, int> result{"", -1};
  fields >> result.first >> result.second;
  if (!fields) result.second = -1;
  return result;
}

// True for a member whose own outcome is a failure, other than its loss.
bool gave_up(const std::string& outcome, const JobMember& member) {
  const auto [word, rank] = read_outcome(outcome);
  if (word == "lost") return rank != member.rank;
  return word == "late" || word == "error";
}

}  // namespace

std::set<int> ranks_called(std::string_view what, const std::vector<std::string>& outcomes,
                           const std::vector<JobMember>& speakers, const JobGroup& group) {
  std::set<int> ranks;
  for (const std::string& outcome : outcomes) {
    const auto [word, rank] = read_outcome(outcome);
    if (word != what) continue;
    if (const int index = group.index_of(rank); index >= 0) ranks.insert(index);
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (gave_up(outcomes[i], speakers[i])) ranks.erase(group.index_of(speakers[i].rank));
  }
  return ranks;
}

std::string own_error(const std::vector<std::string>& outcomes, const JobGroup& members) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    constexpr std::string_view kError = "error ";
    if (!outcomes[i].starts_with(kError)) continue;
    return fmt::format("rank {} of the job: {}", members.members[i].rank,
                       outcomes[i].substr(kError.size()));
  }
  return {};
}

bool all_formed(const std::vector<std::string>& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [](const std::string& outcome) { return outcome == kFormed; });
}

}  // namespace gantry
