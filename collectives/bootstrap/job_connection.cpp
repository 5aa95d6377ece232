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

JobConnection::JobConnection(const ProcessIdentity& identity, const StoreRole& role,
                             std::chrono::milliseconds timeout)
    : timeout_(timeout),
      size_(identity.world_size),
      has_launcher_(identity.source == "glaunch"),
      link_key_(store::link_key(identity.rendezvous_token)),
      terms_(elastic_terms(identity)),
      self_{identity.rank, terms_ ? terms_->id_of(identity.rank) : identity.rank} {
  const SocketAddress address = parse_socket_address(identity.rendezvous);
  if (address.kind == SocketAddress::Kind::tcp && address.port == 0) {
    throw InvalidArgument(fmt::format(
        "GANTRY_RDZV: expected a port that all ranks know, but got '{}'", identity.rendezvous));
  }
  // Checked on every rank, so that all throw instead of waiting for the serving rank.
  store::require_token(address, identity.rendezvous_token, "GANTRY_RDZV_TOKEN");
  const bool is_in_own_folder = address.kind == SocketAddress::Kind::unix_path &&
                                address.name.starts_with(own_folder() + "/");
  if (is_in_own_folder) prepare_own_folder();
  if (role.serves) {
    server_ = role.server
                  ? role.server
                  : std::make_shared<StoreServer>(StoreServerOptions{
                        .address = identity.rendezvous, .token = identity.rendezvous_token});
  }
  // glaunch listens before it starts a rank.
  const auto connect_timeout = has_launcher_ ? std::min(timeout, kLauncherTimeout) : timeout;
  try {
    client_ = std::make_shared<StoreClient>(StoreClientOptions{.address = identity.rendezvous,
                                                               .rank = self_.id,
                                                               .token = identity.rendezvous_token,
                                                               .connect_timeout = connect_timeout});
  } catch (const store::UnprovenServerError& error) {
    raise_timeout(fmt::format("{}: rank {} waited {} for the job's store at {}, but {}", role.maker,
                              self_.rank, duration_text(connect_timeout), identity.rendezvous,
                              error.reason()),
                  {}, {});
  } catch (const TimeoutError&) {
    if (has_launcher_) {
      throw TimeoutError(fmt::format(
          "{}: rank {} waited {}, but the job's store at {}, which glaunch serves, did not answer; "
          "unset GANTRY_* if glaunch has not started this process",
          role.maker, self_.rank, duration_text(connect_timeout), identity.rendezvous));
    }
    raise_timeout(
        fmt::format("{}: rank {} waited {}, but rank(s) 0, which serves the job's store at {}, did "
                    "not come (GANTRY_COLL_TIMEOUT sets the deadline)",
                    role.maker, self_.rank, duration_text(timeout), identity.rendezvous),
        {0}, {0});
  }
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
    if (contains(lost_ids()) || (looks_closely && contains(ended_ids()))) {
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
      const auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
      for (int rank = 0; server_ && rank < size_; ++rank) {
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
