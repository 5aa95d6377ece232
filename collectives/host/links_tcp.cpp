#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>

#include <gantry/core/error.hpp>

#include "collectives/host/breakdown.hpp"
#include "collectives/host/sockets.hpp"
#include "collectives/host/stream.hpp"
#include "core/suspend_aware_timeout.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

// How long the notice of a rank may stay behind the end of its data.
constexpr auto kNoticeTimeout = std::chrono::seconds(1);

class TcpLinks final : public HostLinks {
 public:
  TcpLinks(const LinkGroup& group, LinkSockets sockets)
      : group_(group), wake_(std::move(sockets.wake)) {
    for (PeerSockets& peer : sockets.peers) {
      streams_.emplace_back(std::move(peer.data));
      notices_.push_back(std::move(peer.notices));
    }
    left_.assign(notices_.size(), false);
  }

  ~TcpLinks() override { TcpLinks::leave(); }

  std::string_view name() const override { return "tcp"; }

  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    read_notices(0);
    for (const Outgoing& message : sends) stream(message.rank).queue(message);
    for (Incoming& room : receives) stream(room.rank).await(room);
    move_all([](int) {});
  }

  void converse(Conversation& talk) override {
    read_notices(0);
    std::vector<std::deque<Incoming>> rooms(streams_.size());
    std::vector<std::size_t> sending(streams_.size(), 0);
    const auto add = [&] {
      for (const Outgoing& message : talk.take_sends()) {
        stream(message.rank).queue(message);
        ++sending[static_cast<std::size_t>(message.rank)];
      }
      for (const Incoming& room : talk.take_receives()) {
        stream(room.rank).await(rooms[static_cast<std::size_t>(room.rank)].emplace_back(room));
      }
    };
    add();
    move_all([&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      for (; sending[at] > stream(rank).outgoing(); --sending[at]) talk.sent(rank);
      while (rooms[at].size() > stream(rank).awaited()) {
        const std::size_t bytes = rooms[at].front().bytes;
        rooms[at].pop_front();
        talk.received(rank, bytes);
      }
      add();
    });
  }

  void abort() noexcept override {
    if (aborted_.exchange(true)) return;
    notify({Notice::Kind::aborted, group_.rank});
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
  }

  void leave() noexcept override {
    notify({Notice::Kind::left, group_.rank});
    // Whoever waits for more than was sent learns it now, not when this process has ended.
    for (const HostStream& link : streams_) shutdown(link.descriptor(), SHUT_WR);
  }

 private:
  // Moves all that is pending; `look(rank)` after something moved, which may add more.
  template <class Look>
  void move_all(Look look) {
    SuspendAwareTimeout countdown(group_.timeout);
    for (;;) {
      bool moved = false;
      for (int rank = 0; rank < group_.size; ++rank) {
        HostStream& link = stream(rank);
        if (!link.is_pending()) continue;
        switch (link.progress()) {
          case HostStream::Outcome::moved:
            moved = true;
            break;
          case HostStream::Outcome::stands:
            break;
          case HostStream::Outcome::ended:
            explain_end(rank);
          case HostStream::Outcome::too_long:
            breakdown_.give_up({Notice::Kind::aborted, group_.rank},
                               fmt::format("a message of rank {} is longer than expected", rank));
        }
        look(rank);
      }
      const auto is_pending = [](const HostStream& link) { return link.is_pending(); };
      if (std::none_of(streams_.begin(), streams_.end(), is_pending)) return;
      if (moved) {
        countdown.restart();
        continue;
      }
      if (countdown.has_expired()) breakdown_.give_up_waiting(pending_ranks());
      read_notices(static_cast<int>(countdown.next_wait().count()));
    }
  }

  HostStream& stream(int rank) { return streams_[static_cast<std::size_t>(rank)]; }

  // Waits until something can move, or a rank says its last word, or is gone.
  void read_notices(int wait_ms) {
    breakdown_.require_none();
    if (aborted_) breakdown_.give_up({Notice::Kind::aborted, group_.rank});
    polled_.clear();
    polled_.push_back({wake_.get(), POLLIN, 0});
    for (int rank = 0; rank < group_.size; ++rank) {
      // A descriptor of −1 is passed over.
      const Socket& notices = notices_[static_cast<std::size_t>(rank)];
      polled_.push_back({notices.get(), POLLIN, 0});
    }
    if (wait_ms > 0) {
      for (const HostStream& link : streams_) {
        if (link.is_pending()) polled_.push_back({link.descriptor(), link.wanted(), 0});
      }
    }
    if (poll(polled_.data(), polled_.size(), wait_ms) <= 0) return;
    if (aborted_) breakdown_.give_up({Notice::Kind::aborted, group_.rank});
    for (int rank = 0; rank < group_.size; ++rank) {
      if (polled_[static_cast<std::size_t>(rank) + 1].revents != 0) read_notice(rank);
    }
  }

  void read_notice(int rank) {
    Socket& socket = notices_[static_cast<std::size_t>(rank)];
    Notice notice;
    const ssize_t got = recv(socket.get(), &notice, sizeof notice, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof notice) breakdown_.give_up({Notice::Kind::lost, rank});
    if (notice.kind != Notice::Kind::left || notice.failed_rank != rank) {
      breakdown_.give_up(notice, {}, rank);
    }
    // It needs nobody any more, but what it sent before may still be on its way.
    left_[static_cast<std::size_t>(rank)] = true;
    const std::lock_guard lock(notify_mutex_);  // abort() may be about to write to it
    socket.reset();
  }

  // The data of `rank` ended: it is dead, has left, or gave up over somebody else.
  [[noreturn]] void explain_end(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (!left_[at]) {
      const auto deadline = Clock::now() + kNoticeTimeout;
      if (await_ready(notices_[at].get(), POLLIN, deadline)) read_notice(rank);
    }
    breakdown_.give_up({left_[at] ? Notice::Kind::left : Notice::Kind::lost, rank});
  }

  // Those that something is awaited from, or that take nothing.
  std::vector<int> pending_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size; ++rank) {
      if (streams_[static_cast<std::size_t>(rank)].is_pending()) ranks.push_back(rank);
    }
    return ranks;
  }

  void notify(const Notice& notice) noexcept {
    const std::lock_guard lock(notify_mutex_);
    if (notified_) return;
    notified_ = true;
    for (const Socket& socket : notices_) {
      if (!socket) continue;
      [[maybe_unused]] const auto sent =
          send(socket.get(), &notice, sizeof notice, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }

  LinkGroup group_;
  Socket wake_;
  std::vector<HostStream> streams_;
  std::vector<Socket> notices_;
  std::vector<bool> left_;
  std::vector<pollfd> polled_;
  std::atomic<bool> aborted_ = false;
  Breakdown breakdown_{group_, [this](const Notice& why) { notify(why); }};
  std::mutex notify_mutex_;
  bool notified_ = false;
};

}  // namespace

std::unique_ptr<HostLinks> make_tcp_links(Bootstrap& bootstrap, const LinkGroup& group) {
  return std::make_unique<TcpLinks>(group, connect_ranks(bootstrap, group));
}

}  // namespace gantry
