#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/bootstrap/mpi.hpp"
#include "collectives/host/links/connection_mpi.hpp"
#include "collectives/host/links/links.hpp"
#include "collectives/mpi/library.hpp"
#include "core/processes/suspend_aware_timeout.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

// Polls without a pause before a waiting rank sleeps.
constexpr int kEagerPolls = 2000;
constexpr auto kPause = std::chrono::microseconds(20);
// For the unfinished receives and sends of a failed exchange.
constexpr auto kReleaseTimeout = std::chrono::seconds(1);

// A control message with message counts. MPI does not order data with control messages. So a rank
// that leaves reports how many messages it has sent to, and received from, the destination.
struct CountedControlMessage {
  ControlMessage message;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// A message whose buffer MPI still reads after exchange() returned.
struct Detached {
  std::vector<std::byte> bytes;
  MpiRequest request;
};

// Frees the messages that MPI has sent. Requires: mpi_lock() held.
void drop_sent(std::list<Detached>& messages) {
  std::erase_if(messages, [](Detached& message) {
    int done = 0;
    return mpi().test(&message.request, &done, nullptr) == 0 && done != 0;
  });
}

// Messages of destroyed links. Never destroyed, as MPI may still read them. Guarded by mpi_lock().
std::list<Detached>& abandoned() {
  static auto& messages = *new std::list<Detached>;
  return messages;
}

class MpiLinks final : public HostLinks {
 public:
  MpiLinks(const LinkGroup& group, MpiConnection connection)
      : group_(group), connection_(std::move(connection)), peers_(connection_.members.size()) {}
  // Keeps the communicator: other groups may use it, and other ranks may be gone.
  ~MpiLinks() override {
    MpiLinks::leave();
    const std::lock_guard lock(mpi_lock());
    if (is_in_use()) drop_sent(detached_);
    abandoned().splice(abandoned().end(), detached_);
  }

  std::string_view name() const override { return "mpi"; }

  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    guarded([&] {
      start(sends, receives);
      finish(receives);
    });
  }
  void drive(ExchangeHandler& handler) override {
    guarded([&] {
      start({}, {});
      drive_requests(handler);
    });
  }

  // Misses a message behind a message of another rank.
  bool has_message(int rank) noexcept override {
    const std::lock_guard lock(mpi_lock());
    int there = 0;
    int source = -1;
    return is_in_use() && mpi().iprobe(connection_.tag, connection_.comm, &there, &source) == 0 &&
           there != 0 && source == member(rank);
  }

  void abort() noexcept override {
    if (!aborted_.exchange(true)) notify({ControlMessage::Kind::aborted, group_.rank});
  }
  void leave() noexcept override { notify({ControlMessage::Kind::left, group_.rank}); }

  bool release_memory() noexcept override {
    const auto deadline = Clock::now() + kReleaseTimeout;
    for (bool cancels = true;; cancels = false) {
      {
        const std::lock_guard lock(mpi_lock());
        if (!is_in_use() || end_requests(cancels)) return true;
      }
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  // Guarded by mpi_lock().
  struct Peer {
    std::uint64_t sent = 0;  // messages to it
    std::uint64_t awaited = 0;
    std::uint64_t received = 0;
    std::optional<CountedControlMessage> left;
  };
  // A request of the exchange in progress: a receive, or a send that is not detached.
  struct Pending {
    MpiRequest request;
    int rank = 0;
    std::uint64_t number = 0;  // among the messages of the pair
    bool is_receive = false;
  };

  // An MPI error of a call with `rank` as its peer.
  struct Failure {
    int rank;
    std::string text;
  };

  // Runs `move`, unless the links are broken, and throws the error of a rank where MPI fails.
  template <class Move>
  void guarded(Move move) {
    try {
      read_control();
      move();
    } catch (const Failure& failure) {
      link_error_.fail({ControlMessage::Kind::lost, failure.rank},
                       fmt::format("was lost ({})", failure.text));
    }
  }

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  int member(int rank) const { return connection_.members[static_cast<std::size_t>(rank)]; }
  int control_tag() const { return connection_.tag + 1; }

  void start(std::span<const Outgoing> sends, std::span<Incoming> receives) {
    const std::lock_guard lock(mpi_lock());
    drop_detached();
    requests_.clear();
    for (const Incoming& message : receives) begin_receive(message);
    // An exchange with receives pairs with all its peers, so its sends can wait for receivers.
    const bool detaches = receives.empty();
    for (const Outgoing& message : sends) {
      const std::size_t bytes = message.head.size() + message.body.size();
      std::span<const std::byte> whole = message.body;
      if (!message.head.empty() || (detaches && bytes <= kDetachedBytes)) {
        Detached& copy = detached_.emplace_back();
        copy.bytes.reserve(bytes);
        copy.bytes.insert(copy.bytes.end(), message.head.begin(), message.head.end());
        copy.bytes.insert(copy.bytes.end(), message.body.begin(), message.body.end());
        whole = copy.bytes;
      }
      MpiRequest request;
      require(mpi().isend(whole.data(), static_cast<int>(bytes), member(message.rank),
                          connection_.tag, connection_.comm, &request),
              message.rank);
      const std::uint64_t number = ++peer(message.rank).sent;
      if (detaches && bytes <= kDetachedBytes) {
        detached_.back().request = request;
        continue;
      }
      requests_.push_back({request, message.rank, number, false});
      if (!message.head.empty()) packed_.splice(packed_.end(), detached_, --detached_.end());
    }
    pending_ = static_cast<int>(requests_.size());
  }

  // Requires: mpi_lock() held.
  void begin_receive(const Incoming& message) {
    Pending& pending = requests_.emplace_back();
    pending.rank = message.rank;
    pending.number = ++peer(message.rank).awaited;
    pending.is_receive = true;
    require(mpi().irecv(message.buffer.data(), static_cast<int>(message.buffer.size()),
                        member(message.rank), connection_.tag, connection_.comm, &pending.request),
            message.rank);
  }

  // Runs the handler's messages until none is left.
  void drive_requests(ExchangeHandler& handler) {
    SuspendAwareTimeout countdown(group_.timeout.get());
    for (int polls = 0;; ++polls) {
      {
        const std::lock_guard lock(mpi_lock());
        for (const Incoming& message : handler.take_receives()) begin_receive(message);
        for (const Outgoing& message : handler.take_sends()) {
          MpiRequest request;
          require(mpi().isend(message.body.data(), static_cast<int>(message.body.size()),
                              member(message.rank), connection_.tag, connection_.comm, &request),
                  message.rank);
          requests_.push_back({request, message.rank, ++peer(message.rank).sent, false});
        }
      }
      if (requests_.empty()) return;
      // MPI may complete later messages of a pair first; report them in order.
      bool moved = false;
      std::vector<std::pair<int, bool>> held;
      for (std::size_t i = 0; i < requests_.size();) {
        Pending& pending = requests_[i];
        const std::pair key(pending.rank, pending.is_receive);
        int done = 0;
        std::size_t bytes = 0;
        if (std::find(held.begin(), held.end(), key) == held.end()) {
          const std::lock_guard lock(mpi_lock());
          done = end_request(pending, bytes) ? 1 : 0;
        }
        if (done == 0) {
          held.push_back(key);
          ++i;
          continue;
        }
        requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
        moved = true;
        key.second ? handler.received(key.first, bytes) : handler.sent(key.first);
      }
      if (moved) {
        countdown.restart();
        polls = 0;
        continue;
      }
      read_control();
      check_left_ranks();
      if (countdown.has_expired()) link_error_.fail_late(pending_ranks());
      pause(polls);
    }
  }

  static void pause(int polls) {
    if (polls < kEagerPolls) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }

  // True if the request is done; sets `bytes` of a receive. Requires: mpi_lock() held.
  bool end_request(Pending& pending, std::size_t& bytes) {
    int done = 0;
    int received = 0;
    require(mpi().test(&pending.request, &done, pending.is_receive ? &received : nullptr),
            pending.rank);
    if (done == 0 || !pending.is_receive) return done != 0;
    bytes = static_cast<std::size_t>(received);
    ++peer(pending.rank).received;
    return true;
  }

  // Waits until all requests are done.
  void finish(std::span<Incoming> receives) {
    SuspendAwareTimeout countdown(group_.timeout.get());
    for (int polls = 0;; ++polls) {
      const int before = pending_;
      test(receives);
      if (pending_ == 0) return packed_.clear();
      read_control();
      check_left_ranks();
      if (pending_ < before) {
        countdown.restart();
        polls = 0;
      }
      if (countdown.has_expired()) link_error_.fail_late(pending_ranks());
      pause(polls);
    }
  }

  void test(std::span<Incoming> receives) {
    const std::lock_guard lock(mpi_lock());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      Pending& pending = requests_[i];
      if (pending.request == MpiRequest{}) continue;
      std::size_t bytes = 0;
      if (!end_request(pending, bytes)) continue;
      --pending_;
      if (pending.is_receive) receives[i].bytes = bytes;
    }
    // MPI progresses small messages only while it is called.
    drop_detached();
  }

  void drop_detached() {
    drop_sent(detached_);
    drop_sent(abandoned());
  }

  // False when MPI has ended.
  bool is_in_use() const noexcept {
    int finalized = 0;
    return mpi().finalized(&finalized) == 0 && finalized == 0;
  }

  // True if no request of the last exchange is left. Sends cannot be cancelled.
  bool end_requests(bool cancels) noexcept {
    bool all = true;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      MpiRequest& request = requests_[i].request;
      if (request == MpiRequest{}) continue;
      if (cancels && requests_[i].is_receive) mpi().cancel(&request);
      int done = 0;
      mpi().test(&request, &done, nullptr);
      all = all && done != 0;
    }
    return all;
  }

  // Throws the error of this rank, or of another one.
  void read_control() {
    link_error_.require_intact();
    if (aborted_) link_error_.fail({ControlMessage::Kind::aborted, group_.rank});
    for (;;) {
      CountedControlMessage got;
      int from = -1;
      {
        const std::lock_guard lock(mpi_lock());
        int there = 0;
        int source = -1;
        if (mpi().iprobe(control_tag(), connection_.comm, &there, &source) != 0 || there == 0)
          return;
        if (mpi().recv(&got, sizeof got, source, control_tag(), connection_.comm) != 0) return;
        const auto found =
            std::find(connection_.members.begin(), connection_.members.end(), source);
        from = static_cast<int>(found - connection_.members.begin());
        if (got.message.kind == ControlMessage::Kind::left && got.message.failed_rank == from) {
          peer(from).left = got;
          continue;
        }
      }
      link_error_.fail(got.message, {}, from);
    }
  }

  // Throws if a rank that left will not match a request in progress.
  void check_left_ranks() {
    int gone = -1;
    {
      const std::lock_guard lock(mpi_lock());
      for (std::size_t i = 0; i < requests_.size() && gone < 0; ++i) {
        const Pending& pending = requests_[i];
        const std::optional<CountedControlMessage>& left = peer(pending.rank).left;
        if (pending.request == MpiRequest{} || !left) continue;
        if (pending.number > (pending.is_receive ? left->sent : left->received))
          gone = pending.rank;
      }
    }
    if (gone >= 0) link_error_.fail({ControlMessage::Kind::left, gone});
  }

  static void require(int status, int rank) {
    if (status != 0) throw Failure{rank, mpi_error_text(status)};
  }

  std::vector<int> pending_ranks() const {
    std::vector<int> ranks;
    for (const Pending& pending : requests_) {
      if (pending.request != MpiRequest{}) ranks.push_back(pending.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  // The first call counts.
  void notify(const ControlMessage& message) noexcept {
    const std::lock_guard lock(mpi_lock());
    if (std::exchange(notified_, true) || !is_in_use()) return;
    try {
      for (int rank = 0; rank < group_.size; ++rank) {
        if (rank == group_.rank) continue;
        const CountedControlMessage last{message, peer(rank).sent, peer(rank).received};
        Detached message;
        message.bytes.resize(sizeof last);
        std::memcpy(message.bytes.data(), &last, sizeof last);
        abandoned().push_back(std::move(message));
        Detached& kept = abandoned().back();
        if (mpi().isend(kept.bytes.data(), static_cast<int>(kept.bytes.size()), member(rank),
                        control_tag(), connection_.comm, &kept.request) != 0) {
          abandoned().pop_back();
        }
      }
    } catch (const std::exception& error) {
      logging::debug(fmt::format("leaving other hosts: {}", error.what()));
    }
  }

  LinkGroup group_;
  MpiConnection connection_;
  std::vector<Peer> peers_;
  std::vector<Pending> requests_;
  int pending_ = 0;
  std::list<Detached> detached_;
  std::list<Detached> packed_;  // of the exchange in progress
  std::atomic<bool> aborted_ = false;
  LinkError link_error_{group_, [this](const ControlMessage& why) { notify(why); }};
  bool notified_ = false;  // guarded by mpi_lock()
};

}  // namespace

std::unique_ptr<HostLinks> make_mpi_links(Bootstrap& bootstrap, const LinkGroup& group) {
  return std::make_unique<MpiLinks>(group, open_mpi_connection(bootstrap));
}

}  // namespace gantry
