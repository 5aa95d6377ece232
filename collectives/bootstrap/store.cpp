#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/bootstrap/job_connection.hpp"
#include "core/processes/suspend_aware_timeout.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

// Between two polls for state that the store does not push.
constexpr auto kPollPeriod = std::chrono::milliseconds(100);
// Until ranks that wait for the first exchange compare their numbers of ranks; doubled each time.
constexpr auto kFirstLook = std::chrono::milliseconds(500);
// How long the rank that serves the store waits until the others know of another number of ranks.
constexpr auto kSizeTimeout = std::chrono::seconds(2);

class StoreBootstrap final : public Bootstrap {
 public:
  // `me` is an index of `members`. `formation` is where a group that forms agrees on its outcome;
  // empty: the group is not formed that way.
  StoreBootstrap(std::shared_ptr<JobConnection> connection, std::vector<JobMember> members, int me,
                 std::string prefix, std::string formation = "")
      : connection_(std::move(connection)),
        members_(std::move(members)),
        me_(me),
        prefix_(std::move(prefix)),
        formation_(std::move(formation)) {}

  JobGroup job_group() const override { return {connection_, members_}; }

  // A long text is sent in chunks. Each begins with a header: the total length, so that all ranks
  // take part in as many rounds as the longest text needs, and the number of members. Ranks of a
  // world that were started with different numbers of ranks wait for different ranks.
  std::vector<std::string> all_gather(const std::string& bytes) override {
    std::vector<std::string> all(members_.size());
    std::uint64_t longest = bytes.size();
    for (std::size_t sent = 0; sent == 0 || sent < longest; sent += kChunkBytes) {
      std::string chunk(kHeaderBytes, '\0');
      const std::uint64_t header = bytes.size() | std::uint64_t{members_.size()} << kMembersAt;
      std::memcpy(chunk.data(), &header, kHeaderBytes);
      if (sent < bytes.size()) chunk.append(bytes, sent, kChunkBytes);
      std::vector<std::string> chunks = exchange(chunk);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        longest = std::max(longest, length_in(chunks[i], i));
        chunks[i].erase(0, kHeaderBytes);
        sent == 0 ? all[i].swap(chunks[i]) : void(all[i].append(chunks[i]));
      }
    }
    return all;
  }
  int lost_rank() const noexcept override {
    try {
      for (const int id : connection_->lost_ids()) {
        if (const int member = index_of(id); member >= 0) return member;
      }
    } catch (const std::exception&) {
      // Out of memory for a list; the caller retries.
    }
    return -1;
  }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    std::string prefix = fmt::format("{}/{}/{}", prefix_, name, fmt::join(members, "-"));
    // A long list does not fit into a key.
    if (prefix.size() > kStoreMaxKeyBytes / 2) {
      prefix = fmt::format("{}/{:x}", prefix.substr(0, kStoreMaxKeyBytes / 4),
                           std::hash<std::string>{}(prefix));
    }
    const int times = subsets_[prefix]++;
    return std::make_unique<StoreBootstrap>(connection_, entries_of(members_, members),
                                            rank_among(members, me_),
                                            fmt::format("{}#{}", prefix, times));
  }

  void leave() noexcept override {
    // The store only knows the world's ranks, so a subset does not deregister. Nor does the first
    // group of a job whose later groups have other members.
    if (prefix_ == kWorldPrefix && !connection_->is_self_made()) connection_->leave();
  }

  static constexpr const char* kWorldPrefix = "gantry/bootstrap";

 private:
  static constexpr std::size_t kHeaderBytes = sizeof(std::uint64_t);
  static constexpr std::size_t kChunkBytes = kStoreMaxValueBytes - kHeaderBytes;
  static constexpr unsigned kMembersAt = 40;  // the bit of a header, behind the length

  // The first exchange of the world's ranks: their launcher may have told them different sizes.
  bool is_first(std::int64_t round) const { return round == 0 && prefix_ == kWorldPrefix; }

  // Exchanges one value per rank.
  std::vector<std::string> exchange(const std::string& bytes) {
    const std::int64_t round = round_++;
    const std::shared_ptr<StoreClient> client = connection_->client();
    SuspendAwareTimeout countdown(connection_->timeout());
    std::vector<std::string> all;
    try {
      all = gather(*client, round, bytes, countdown);
      for (int rank = static_cast<int>(all.size()); rank < static_cast<int>(members_.size());
           ++rank) {
        all.push_back(rank == me_ ? bytes : get(*client, round, rank, countdown));
      }
    } catch (const PeerLostError& error) {
      if (is_first(round)) {  // the loss may be a consequence
        compare_sizes(*client);
        compare_size(*client, error.rank());
      }
      if (error.rank() >= 0) {
        report_to_launcher({.kind = FailureKind::peer_lost,
                            .message = error.what(),
                            .ranks = of_job({error.rank()})});
        throw;
      }
      // A changed message is no fault of the rank that serves the store.
      if (connection_->server() < 0 || client->is_forged()) throw;
      throw PeerLostError(fmt::format("{}: rank {}, which served the job's store, has ended",
                                      purpose(), connection_->server()),
                          index_of(connection_->server()));
    }
    return all;
  }

  // Writes this member's value, and gathers the values of all, in one request. Nothing where each
  // must be asked for: after a loss, or because they are too long for one message. Throws as get().
  std::vector<std::string> gather(StoreClient& client, std::int64_t round, const std::string& bytes,
                                  SuspendAwareTimeout& countdown) {
    const int count = static_cast<int>(members_.size());
    const std::string prefix = fmt::format("{}/{}", prefix_, round);
    // All members wrote the previous round, so they have read the one before it.
    const std::string outdated = round > 1 ? key(round - 2, me_) : std::string();
    bool is_written = false;
    // The store tells of losses and ends at once. Only a member that gave up is polled for.
    const bool looks = is_first(round);
    std::chrono::milliseconds period = formation_.empty() ? connection_->timeout() : kPollPeriod;
    if (looks) period = std::min(period, kFirstLook);
    for (;;) {
      try {
        auto values =
            std::exchange(is_written, true)
                ? client.gather(prefix, count, period, known_ends_)
                : client.exchange(prefix, count, me_, bytes, period, known_ends_, outdated);
        return std::move(values).value_or(std::vector<std::string>());
      } catch (const TimeoutError&) {
      } catch (const PeerLostError& error) {
        if (error.rank() < 0) throw;
        return {};
      }
      if (looks) {
        compare_sizes(client);
        period = std::min(2 * period, std::max(kFirstLook, connection_->timeout() / 8));
      }
      // In this order: an end between the two makes the next gather return.
      const auto ends = static_cast<std::uint32_t>(connection_->ended_ids().size());
      const bool waited_long = std::exchange(known_ends_, ends) == ends;
      require_running(client, round);
      if (formation_.empty() && !looks ? waited_long : countdown.has_expired(Clock::now())) {
        const std::vector<int> missing = missing_of(client, round);
        if (!missing.empty()) {
          raise_timeout(absence_text(me_, connection_->timeout(), missing), missing,
                        of_job(missing));
        }
      }
    }
  }

  // The length of the text of which `rank` sent a chunk. Throws: Error; InvalidArgument if the rank
  // counts other members.
  std::uint64_t length_in(const std::string& chunk, std::size_t rank) const {
    std::uint64_t header = 0;
    if (chunk.size() >= kHeaderBytes) std::memcpy(&header, chunk.data(), kHeaderBytes);
    const std::uint64_t members = header >> kMembersAt;
    if (members == members_.size()) return header & ((std::uint64_t{1} << kMembersAt) - 1);
    if (members == 0) {
      throw Error(fmt::format("Communicator: rank {} runs another version of gantry", rank));
    }
    raise_other_size(static_cast<int>(rank), members);
  }

  // Throws InvalidArgument if a rank that has come was started with another number of ranks. Rank 0
  // looks at all ranks, and the others at rank 0.
  void compare_sizes(StoreClient& client) const {
    const int most = me_ == 0 ? static_cast<int>(members_.size()) : 1;
    for (int rank = 0; rank < most; ++rank) compare_size(client, rank);
  }
  void compare_size(StoreClient& client, int rank) const {
    std::optional<std::string> chunk;
    try {
      if (rank >= 0 && rank != me_) chunk = client.try_get(key(0, rank));
    } catch (const PeerLostError&) {
      // The store is gone.
    }
    if (chunk) (void)length_in(*chunk, static_cast<std::size_t>(rank));
  }

  [[noreturn]] void raise_other_size(int rank, std::uint64_t members) const {
    std::uint64_t mine = members_.size();
    report_other_size(static_cast<int>(std::max(mine, members)));
    int first = me_;
    if (rank < first) {
      std::swap(first, rank);
      std::swap(mine, members);
    }
    throw InvalidArgument(
        fmt::format("{}: expected one number of ranks on all of them, but got {} on rank {} and {} "
                    "on rank {}; start every rank with the same world size (WORLD_SIZE or that of "
                    "the launcher)",
                    purpose(), mine, first, members, rank));
  }

  // Wakes the ranks that wait: they find the difference, too. The rank that serves the store stays
  // until the others, up to `ranks` of them, have found it.
  void report_other_size(int ranks) const noexcept {
    const auto knows = [&](int rank) { return fmt::format("{}/knows/{}", prefix_, rank); };
    try {
      const std::shared_ptr<StoreClient> client = connection_->client();
      client->set(knows(me_), "");
      connection_->give_up();
      if (connection_->server() != me_) return;
      const Clock::time_point end = Clock::now() + kSizeTimeout;
      for (int rank = 0; rank < ranks; ++rank) {
        while (Clock::now() < end && !client->try_get(knows(rank))) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
    } catch (const std::exception&) {
      // The end of the store tells the others that the world fails.
    }
  }

  std::vector<int> of_job(const std::vector<int>& members) const {
    std::vector<int> ranks;
    for (const int member : members) {
      ranks.push_back(members_.at(static_cast<std::size_t>(member)).rank);
    }
    return ranks;
  }

  std::string key(std::int64_t round, int rank) const {
    return fmt::format("{}/{}/{}", prefix_, round, rank);
  }

  // The index of the process with this number in the store.
  int index_of(int id) const noexcept {
    const auto found = std::find_if(members_.begin(), members_.end(),
                                    [&](const JobMember& member) { return member.id == id; });
    return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
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
      raise_timeout(absence_text(me_, connection_->timeout(), missing), missing, of_job(missing));
    }
  }

  std::vector<int> missing_of(StoreClient& client, std::int64_t round) const {
    std::vector<int> missing;
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
      if (rank != me_ && !client.try_get(key(round, rank))) missing.push_back(rank);
    }
    return missing;
  }

  // Throws if the process of a member without a value in this round has ended or has given up.
  void require_running(StoreClient& client, std::int64_t round) const {
    for (const int id : connection_->departed_ids()) {
      const int rank = index_of(id);
      if (rank < 0 || client.try_get(key(round, rank))) continue;
      throw PeerLostError(fmt::format("{}: rank {} has left the job", purpose(), rank), rank);
    }
    for (int rank = 0; !formation_.empty() && rank < static_cast<int>(members_.size()); ++rank) {
      const JobMember& member = members_[static_cast<std::size_t>(rank)];
      const auto outcome = client.try_get(JobConnection::register_key(formation_, member));
      if (!outcome || *outcome == kFormed || client.try_get(key(round, rank))) continue;
      throw PeerLostError(fmt::format("{}: rank {} gave up", purpose(), rank), rank);
    }
  }

  std::shared_ptr<JobConnection> connection_;
  std::vector<JobMember> members_;
  int me_;
  std::string prefix_;
  std::string formation_;
  std::int64_t round_ = 0;
  std::uint32_t known_ends_ = 0;  // of ranks that ended in order
  std::map<std::string, int> subsets_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_store_bootstrap(std::shared_ptr<JobConnection> job, int size) {
  std::vector<JobMember> members;
  for (int rank = 0; rank < size; ++rank) members.push_back({rank, rank});
  const int me = job->self().rank;
  return std::make_unique<StoreBootstrap>(std::move(job), std::move(members), me,
                                          StoreBootstrap::kWorldPrefix);
}

std::unique_ptr<Bootstrap> make_store_bootstrap(const ProcessIdentity& identity,
                                                const StoreRole& role,
                                                std::chrono::milliseconds timeout) {
  return make_store_bootstrap(std::make_shared<JobConnection>(identity, role, timeout),
                              identity.world_size);
}

std::unique_ptr<Bootstrap> make_formation_bootstrap(const JobGroup& group,
                                                    const std::string& formation) {
  const int me = group.index_of(group.job->self().rank);
  return std::make_unique<StoreBootstrap>(group.job, group.members, me, formation + "/bootstrap",
                                          formation);
}

}  // namespace gantry
