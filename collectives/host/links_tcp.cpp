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

#include "collectives/host/link_error.hpp"
#include "collectives/host/sockets.hpp"
#include "collectives/host/stream.hpp"
#include "core/suspend_aware_timeout.hpp"

namespace gantry {

namespace {

using Clock = std::chrono::steady_clock;

// How long a rank's control message may arrive after the end of its data.
constexpr auto kControlTimeout = std::chrono::seconds(1);

class TcpLinks final : public HostLinks {
 public:
  TcpLinks(const LinkGroup& group, LinkSockets sockets)
      : group_(group), wake_(std::move(sockets.wake)) {
    for (PeerSockets& peer : sockets.peers) {
      streams_.emplace_back(std::move(peer.data));
      control_sockets_.push_back(std::move(peer.control));
    }
    left_.assign(control_sockets_.size(), false);
  }

  ~TcpLinks() override { TcpLinks::leave(); }

  std::string_view name() const override { return "tcp"; }

  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    read_control(0);
    for (const Outgoing& message : sends) stream(message.rank).queue(message);
    for (Incoming& message : receives) stream(message.rank).await(message);
    move_all([](int) {});
  }

  void drive(ExchangeHandler& handler) override {
    read_control(0);
    std::vector<std::deque<Incoming>> received(streams_.size());
    std::vector<std::size_t> sending(streams_.size(), 0);
    const auto add = [&] {
      for (const Outgoing& message : handler.take_sends()) {
        stream(message.rank).queue(message);
        ++sending[static_cast<std::size_t>(message.rank)];
      }
      for (const Incoming& message : handler.take_receives()) {
        stream(message.rank)
            .await(received[static_cast<std::size_t>(message.rank)].emplace_back(message));
      }
    };
    add();
    move_all([&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      for (; sending[at] > stream(rank).outgoing(); --sending[at]) handler.sent(rank);
      while (received[at].size() > stream(rank).awaited()) {
        const std::size_t bytes = received[at].front().bytes;
        received[at].pop_front();
        handler.received(rank, bytes);
      }
      add();
    });
  }

  void abort() noexcept override {
    if (aborted_.exchange(true)) return;
    notify({ControlMessage::Kind::aborted, group_.rank});
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
  }

  void leave() noexcept override {
    notify({ControlMessage::Kind::left, group_.rank});
    // Ranks that wait for more data detect it now rather than when this process ends.
    for (const HostStream& link : streams_) shutdown(link.descriptor(), SHUT_WR);
  }

 private:
  // Runs until nothing is pending. Calls `on_progress(rank)`, which may queue more.
  template <class OnProgress>
  void move_all(OnProgress on_progress) {
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
          case HostStream::Outcome::blocked:
            break;
          case HostStream::Outcome::ended:
            diagnose_end(rank);
          case HostStream::Outcome::too_long:
            link_error_.fail({ControlMessage::Kind::aborted, group_.rank},
                             fmt::format("a message of rank {} is longer than expected", rank));
        }
        on_progress(rank);
      }
      const auto is_pending = [](const HostStream& link) { return link.is_pending(); };
      if (std::none_of(streams_.begin(), streams_.end(), is_pending)) return;
      if (moved) {
        countdown.restart();
        continue;
      }
      if (countdown.has_expired()) link_error_.fail_late(pending_ranks());
      read_control(static_cast<int>(countdown.next_wait().count()));
    }
  }

  HostStream& stream(int rank) { return streams_[static_cast<std::size_t>(rank)]; }

  // Waits until a transfer can progress, a control message arrives, or a rank is lost.
  void read_control(int wait_ms) {
    link_error_.require_intact();
    if (aborted_) link_error_.fail({ControlMessage::Kind::aborted, group_.rank});
    polled_.clear();
    polled_.push_back({wake_.get(), POLLIN, 0});
    for (int rank = 0; rank < group_.size; ++rank) {
      // poll() ignores a descriptor of −1.
      const Socket& control = control_sockets_[static_cast<std::size_t>(rank)];
      polled_.push_back({control.get(), POLLIN, 0});
    }
    if (wait_ms > 0) {
      for (const HostStream& link : streams_) {
        if (link.is_pending()) polled_.push_back({link.descriptor(), link.wanted(), 0});
      }
    }
    if (poll(polled_.data(), polled_.size(), wait_ms) <= 0) return;
    if (aborted_) link_error_.fail({ControlMessage::Kind::aborted, group_.rank});
    for (int rank = 0; rank < group_.size; ++rank) {
      if (polled_[static_cast<std::size_t>(rank) + 1].revents != 0) read_control_message(rank);
    }
  }

  void read_control_message(int rank) {
    Socket& socket = control_sockets_[static_cast<std::size_t>(rank)];
    ControlMessage message;
    const ssize_t got = recv(socket.get(), &message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof message) link_error_.fail({ControlMessage::Kind::lost, rank});
    if (message.kind != ControlMessage::Kind::left || message.failed_rank != rank) {
      link_error_.fail(message, {}, rank);
    }
    // The rank is done, but data that it sent before may still arrive.
    left_[static_cast<std::size_t>(rank)] = true;
    const std::lock_guard lock(notify_mutex_);  // abort() may be about to write to it
    socket.reset();
  }

  // The data of `rank` ended: it is dead, has left, or failed because of another rank.
  [[noreturn]] void diagnose_end(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (!left_[at]) {
      const auto deadline = Clock::now() + kControlTimeout;
      if (await_ready(control_sockets_[at].get(), POLLIN, deadline)) read_control_message(rank);
    }
    link_error_.fail({left_[at] ? ControlMessage::Kind::left : ControlMessage::Kind::lost, rank});
  }

  // Returns the ranks with unfinished sends or receives.
  std::vector<int> pending_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size; ++rank) {
      if (streams_[static_cast<std::size_t>(rank)].is_pending()) ranks.push_back(rank);
    }
    return ranks;
  }

  void notify(const ControlMessage& message) noexcept {
    const std::lock_guard lock(notify_mutex_);
    if (notified_) return;
    notified_ = true;
    for (const Socket& socket : control_sockets_) {
      if (!socket) continue;
      [[maybe_unused]] const auto sent =
          send(socket.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }

  LinkGroup group_;
  Socket wake_;
  std::vector<HostStream> streams_;
  std::vector<Socket> control_sockets_;
  std::vector<bool> left_;
  std::vector<pollfd> polled_;
  std::atomic<bool> aborted_ = false;
  LinkError link_error_{group_, [this](const ControlMessage& why) { notify(why); }};
  std::mutex notify_mutex_;
  bool notified_ = false;
};

}  // namespace

std::unique_ptr<HostLinks> make_tcp_links(Bootstrap& bootstrap, const LinkGroup& group) {
  return std::make_unique<TcpLinks>(group, connect_ranks(bootstrap, group));
}

}  // namespace gantry
