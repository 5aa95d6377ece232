#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "core/processes/suspend_aware_timeout.hpp"

namespace gantry {

namespace {

// The rendezvous of the threads of one group.
class Rendezvous {
 public:
  Rendezvous(int size, std::chrono::milliseconds timeout)
      : timeout_(timeout), gone_(static_cast<std::size_t>(size), false) {}

  // Returns every rank's bytes; nullopt after the timeout, with the missing ranks in `absent`.
  std::vector<std::string> exchange(int rank, std::int64_t number, const std::string& bytes,
                                    std::string_view purpose, std::vector<int>& absent) {
    std::unique_lock lock(mutex_);
    Round& round = rounds_[number];
    round.bytes.resize(gone_.size());
    round.bytes[static_cast<std::size_t>(rank)] = bytes;
    const auto is_complete = [&] { return round.givers == gone_.size(); };
    // An earlier call would wake all that wait, for nothing.
    if (++round.givers == gone_.size()) changed_.notify_all();
    const auto lost = [&] {
      for (std::size_t i = 0; i < gone_.size(); ++i) {
        if (gone_[i] && !round.bytes[i]) return static_cast<int>(i);
      }
      return -1;
    };
    const auto is_settled = [&] { return is_complete() || lost() >= 0; };
    SuspendAwareTimeout countdown(timeout_);
    while (!changed_.wait_for(lock, countdown.next_wait(), is_settled) &&
           !countdown.has_expired()) {
    }
    if (!is_settled()) {
      for (std::size_t i = 0; i < round.bytes.size(); ++i) {
        if (!round.bytes[i]) absent.push_back(static_cast<int>(i));
      }
      return {};
    }
    if (const int rank_lost = lost(); rank_lost >= 0) {
      throw PeerLostError(fmt::format("{}: rank {} gave up", purpose, rank_lost), rank_lost);
    }
    std::vector<std::string> all;
    for (const auto& part : round.bytes) all.push_back(*part);
    if (++round.takers == gone_.size()) rounds_.erase(number);
    return all;
  }

  std::chrono::milliseconds timeout() const { return timeout_; }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  // Returns the rendezvous of `members` threads with this `key`, shared by all of them.
  std::shared_ptr<Rendezvous> part(const std::string& key, std::size_t members) {
    const std::lock_guard lock(mutex_);
    Part& part = parts_[key];
    if (!part.rendezvous)
      part.rendezvous = std::make_shared<Rendezvous>(static_cast<int>(members), timeout_);
    std::shared_ptr<Rendezvous> rendezvous = part.rendezvous;
    if (++part.takers == members) parts_.erase(key);
    return rendezvous;
  }

 private:
  struct Round {
    std::vector<std::optional<std::string>> bytes;
    std::size_t givers = 0;
    std::size_t takers = 0;
  };
  struct Part {
    std::shared_ptr<Rendezvous> rendezvous;
    std::size_t takers = 0;
  };

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Round> rounds_;
  std::map<std::string, Part> parts_;
  std::vector<bool> gone_;
};

class LocalBootstrap final : public Bootstrap {
 public:
  LocalBootstrap(std::shared_ptr<Rendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  ~LocalBootstrap() override { rendezvous_->leave(rank_); }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    std::vector<int> absent;
    std::vector<std::string> all = rendezvous_->exchange(rank_, round_++, bytes, purpose(), absent);
    if (!absent.empty()) {
      throw TimeoutError(absence_text(rank_, rendezvous_->timeout(), absent), absent);
    }
    return all;
  }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    std::string key = fmt::format("{}/{}", name, fmt::join(members, "/"));
    key += fmt::format("#{}", subsets_[key]++);
    return std::make_unique<LocalBootstrap>(rendezvous_->part(key, members.size()),
                                            rank_among(members, rank_));
  }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  int rank_;
  std::int64_t round_ = 0;
  std::map<std::string, int> subsets_;
};

}  // namespace

std::vector<std::unique_ptr<Bootstrap>> make_local_bootstraps(int size,
                                                              std::chrono::milliseconds timeout) {
  const auto rendezvous = std::make_shared<Rendezvous>(size, timeout);
  std::vector<std::unique_ptr<Bootstrap>> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(std::make_unique<LocalBootstrap>(rendezvous, rank));
  }
  return all;
}

}  // namespace gantry
