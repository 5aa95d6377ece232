#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/store.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/failure_note.hpp"
#include "core/socket.hpp"
#include "core/suspend_aware_timeout.hpp"
#include "job/store_admission.hpp"
#include "job/store_membership.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

// Between two polls for state that the store does not push.
constexpr auto kPollPeriod = std::chrono::milliseconds(100);
constexpr auto kLongestPollPeriod = std::chrono::milliseconds(800);
// For an answer of a server that was started before this process.
constexpr std::chrono::milliseconds kLauncherTimeout = std::chrono::seconds(60);

// The connection that a world and its subsets share.
class Connection {
 public:
  Connection(const ProcessIdentity& identity, std::chrono::milliseconds timeout)
      : timeout_(timeout),
        rank_(identity.rank),
        size_(identity.world_size),
        has_launcher_(identity.source == "glaunch") {
    const SocketAddress address = parse_socket_address(identity.rendezvous);
    if (address.kind == SocketAddress::Kind::tcp && address.port == 0) {
      throw InvalidArgument(fmt::format(
          "GANTRY_RDZV: expected a port that all ranks know, but got '{}'", identity.rendezvous));
    }
    // Checked on every rank, so that all throw instead of waiting for the serving rank.
    store::require_token(address, identity.rendezvous_token, "GANTRY_RDZV_TOKEN");
    if (identity.serves_rendezvous()) {
      server_ = std::make_unique<StoreServer>(
          StoreServerOptions{.address = identity.rendezvous, .token = identity.rendezvous_token});
    }
    // glaunch listens before it starts a rank.
    const auto connect_timeout = has_launcher_ ? std::min(timeout, kLauncherTimeout) : timeout;
    try {
      client_ =
          std::make_shared<StoreClient>(StoreClientOptions{.address = identity.rendezvous,
                                                           .rank = identity.rank,
                                                           .token = identity.rendezvous_token,
                                                           .connect_timeout = connect_timeout});
    } catch (const TimeoutError&) {
      if (has_launcher_) {
        throw TimeoutError(fmt::format(
            "Communicator::world: rank {} waited {}, but the job's store at {}, which glaunch "
            "serves, did not answer; unset GANTRY_* if glaunch has not started this process",
            rank_, duration_text(connect_timeout), identity.rendezvous));
      }
      raise_timeout(
          fmt::format("Communicator::world: rank {} waited {}, but rank(s) 0, which serves the "
                      "job's store at {}, did not come (GANTRY_COLL_TIMEOUT sets the deadline)",
                      rank_, duration_text(timeout), identity.rendezvous),
          {0}, {0});
    }
  }

  std::chrono::milliseconds timeout() const { return timeout_; }
  // The rank that serves the store, −1 if glaunch does.
  int server() const { return has_launcher_ ? -1 : 0; }

  std::shared_ptr<StoreClient> client() const {
    std::shared_ptr<StoreClient> client = find();
    if (!client) throw PeerLostError("Communicator: this rank has left the job's store");
    return client;
  }

  // The lost ranks of the world, in order of their loss.
  std::vector<int> lost_ranks() const {
    const std::shared_ptr<StoreClient> client = find();
    // Querying one rank is cheaper, and usually none is lost.
    return client && client->lost_rank() >= 0 ? client->lost_ranks() : std::vector<int>();
  }

  // A rank that serves the store waits until the others, which may still read from it, have left
  // too. It does not wait for lost ranks, and has a timeout.
  void leave() noexcept {
    try {
      if (const std::shared_ptr<StoreClient> client = find()) {
        client->set(left_key(rank_), "");
        const auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
        for (int rank = 0; server_ && rank < size_; ++rank) {
          (void)client->get(left_key(rank),
                            std::chrono::duration_cast<std::chrono::milliseconds>(
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

 private:
  std::shared_ptr<StoreClient> find() const noexcept {
    const std::lock_guard lock(mutex_);
    return client_;
  }

  static constexpr auto kLeaveTimeout = std::chrono::seconds(10);

  static std::string left_key(int rank) { return fmt::format("gantry/left/{}", rank); }

  const std::chrono::milliseconds timeout_;
  const int rank_;
  const int size_;
  const bool has_launcher_;
  std::unique_ptr<StoreServer> server_;
  mutable std::mutex mutex_;  // guards client_
  std::shared_ptr<StoreClient> client_;
};

class StoreBootstrap final : public Bootstrap {
 public:
  // `members` are ranks of the world; `me` is an index of it.
  StoreBootstrap(std::shared_ptr<Connection> connection, std::vector<int> members, int me,
                 std::string prefix)
      : connection_(std::move(connection)),
        members_(std::move(members)),
        me_(me),
        prefix_(std::move(prefix)) {}

  // A long text is sent in chunks. Each begins with the total length, so that all ranks take part
  // in as many rounds as the longest text needs.
  std::vector<std::string> all_gather(const std::string& bytes) override {
    std::vector<std::string> all(members_.size());
    std::uint64_t longest = bytes.size();
    for (std::size_t sent = 0; sent == 0 || sent < longest; sent += kChunkBytes) {
      std::string chunk(kLengthBytes, '\0');
      const std::uint64_t length = bytes.size();
      std::memcpy(chunk.data(), &length, kLengthBytes);
      if (sent < length) chunk.append(bytes, sent, kChunkBytes);
      const std::vector<std::string> chunks = exchange(chunk);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        longest = std::max(longest, length_in(chunks[i], i));
        all[i].append(chunks[i], kLengthBytes);
      }
    }
    return all;
  }
  int lost_rank() const noexcept override {
    try {
      for (const int rank : connection_->lost_ranks()) {
        if (const int member = index_of(rank); member >= 0) return member;
      }
    } catch (const std::exception&) {
      // Out of memory for a list; the caller retries.
    }
    return -1;
  }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    std::vector<int> of_world;
    for (const int member : members)
      of_world.push_back(members_.at(static_cast<std::size_t>(member)));
    std::string prefix = fmt::format("{}/{}/{}", prefix_, name, fmt::join(members, "-"));
    // A long list does not fit into a key.
    if (prefix.size() > kStoreMaxKeyBytes / 2) {
      prefix = fmt::format("{}/{:x}", prefix.substr(0, kStoreMaxKeyBytes / 4),
                           std::hash<std::string>{}(prefix));
    }
    const int times = subsets_[prefix]++;
    const auto me = std::find(members.begin(), members.end(), me_) - members.begin();
    return std::make_unique<StoreBootstrap>(connection_, std::move(of_world), static_cast<int>(me),
                                            fmt::format("{}#{}", prefix, times));
  }

  void leave() noexcept override {
    // The store only knows the world's ranks, so a subset does not deregister.
    if (prefix_ == kWorldPrefix) connection_->leave();
  }

  static constexpr const char* kWorldPrefix = "gantry/bootstrap";

 private:
  static constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
  static constexpr std::size_t kChunkBytes = kStoreMaxValueBytes - kLengthBytes;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

  // Exchanges one value per rank.
  std::vector<std::string> exchange(const std::string& bytes) {
    const std::int64_t round = round_++;
    const std::shared_ptr<StoreClient> client = connection_->client();
    SuspendAwareTimeout countdown(connection_->timeout());
    std::vector<std::string> all;
    try {
      client->set(key(round, me_), bytes);
      all = gather(*client, round, countdown);
      for (int rank = static_cast<int>(all.size()); rank < static_cast<int>(members_.size());
           ++rank) {
        all.push_back(rank == me_ ? bytes : get(*client, round, rank, countdown));
      }
      // A rank that wrote this round has read the previous one.
      if (round > 0) client->erase(key(round - 1, me_));
    } catch (const PeerLostError& error) {
      if (error.rank() >= 0) {
        report_to_launcher({.kind = FailureKind::peer_lost,
                            .message = error.what(),
                            .ranks = of_world({error.rank()})});
        throw;
      }
      if (connection_->server() < 0) throw;
      throw PeerLostError(fmt::format("{}: rank {}, which served the job's store, has ended",
                                      purpose(), connection_->server()),
                          index_of(connection_->server()));
    }
    return all;
  }

  // All members' values, in one request. Nothing where each must be asked for: after a loss, or
  // because they are too long for one message. Throws as get().
  std::vector<std::string> gather(StoreClient& client, std::int64_t round,
                                  SuspendAwareTimeout& countdown) const {
    const int count = static_cast<int>(members_.size());
    // A store tells of a loss at once; only the end of a rank is polled for. Large groups poll less
    // often.
    const auto longest =
        std::clamp(std::chrono::milliseconds(count), kPollPeriod, kLongestPollPeriod);
    auto period = kPollPeriod;
    for (;;) {
      try {
        return client
            .gather(fmt::format("{}/{}", prefix_, round), count,
                    std::min(period, countdown.next_wait()))
            .value_or(std::vector<std::string>());
      } catch (const TimeoutError&) {
      } catch (const PeerLostError& error) {
        if (error.rank() < 0) throw;
        return {};
      }
      require_running(client, round);
      if (countdown.has_expired(Clock::now())) {
        const std::vector<int> missing = missing_of(client, round);
        if (!missing.empty()) {
          raise_timeout(absence_text(me_, connection_->timeout(), missing), missing,
                        of_world(missing));
        }
      }
      period = std::min(2 * period, longest);
    }
  }

  // Throws: Error.
  static std::uint64_t length_in(const std::string& chunk, std::size_t rank) {
    std::uint64_t length = kMostBytes;
    if (chunk.size() >= kLengthBytes) std::memcpy(&length, chunk.data(), kLengthBytes);
    if (length < kMostBytes) return length;
    throw Error(fmt::format("Communicator: rank {} runs another version of gantry", rank));
  }

  std::vector<int> of_world(const std::vector<int>& members) const {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(members_.at(static_cast<std::size_t>(member)));
    return ranks;
  }

  std::string key(std::int64_t round, int rank) const {
    return fmt::format("{}/{}/{}", prefix_, round, rank);
  }

  int index_of(int of_world) const noexcept {
    const auto found = std::find(members_.begin(), members_.end(), of_world);
    return of_world < 0 || found == members_.end() ? -1
                                                   : static_cast<int>(found - members_.begin());
  }

  // Waits for a member's value of a round. The store throws if any rank is lost. This function
  // throws only if a member is lost, or has ended without a value.
  std::string get(StoreClient& client, std::int64_t round, int rank,
                  SuspendAwareTimeout& countdown) const {
    const std::string name = key(round, rank);
    Clock::time_point next_poll = Clock::now() + kPollPeriod;
    for (;;) {
      try {
        return client.get(name, kPollPeriod);
      } catch (const TimeoutError&) {
      } catch (const PeerLostError& error) {
        if (error.rank() < 0) throw;
        // The store no longer waits after a loss, so wait here.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (const auto value = client.try_get(name)) return *value;
      if (const int lost = lost_rank(); lost >= 0) {
        require_running(client, round);  // the loss may be its consequence
        throw PeerLostError(fmt::format("{}: rank {} left the job", purpose(), lost), lost);
      }
      const Clock::time_point now = Clock::now();
      if (now < next_poll) continue;
      next_poll = now + kPollPeriod;
      require_running(client, round);
      if (!countdown.has_expired(now)) continue;
      const std::vector<int> missing = missing_of(client, round);
      if (missing.empty()) continue;
      raise_timeout(absence_text(me_, connection_->timeout(), missing), missing, of_world(missing));
    }
  }

  std::vector<int> missing_of(StoreClient& client, std::int64_t round) const {
    std::vector<int> missing;
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
      if (rank != me_ && !client.try_get(key(round, rank))) missing.push_back(rank);
    }
    return missing;
  }

  // Throws if the process of a member without a value in this round has ended.
  void require_running(StoreClient& client, std::int64_t round) const {
    std::istringstream ended(client.try_get(store::kEndedKey).value_or(""));
    for (int of_world = 0; ended >> of_world;) {
      const int rank = index_of(of_world);
      if (rank < 0 || client.try_get(key(round, rank))) continue;
      throw PeerLostError(fmt::format("{}: rank {} has left the job", purpose(), rank), rank);
    }
  }

  std::shared_ptr<Connection> connection_;
  std::vector<int> members_;
  int me_;
  std::string prefix_;
  std::int64_t round_ = 0;
  std::map<std::string, int> subsets_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_store_bootstrap(const ProcessIdentity& identity,
                                                std::chrono::milliseconds timeout) {
  std::vector<int> members(static_cast<std::size_t>(identity.world_size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<StoreBootstrap>(std::make_shared<Connection>(identity, timeout),
                                          std::move(members), identity.rank,
                                          StoreBootstrap::kWorldPrefix);
}

}  // namespace gantry
