#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>

#include <gantry/core/error.hpp>

#include "collectives/host/links/connections.hpp"
#include "collectives/host/links/links.hpp"
#include "collectives/host/links/stream.hpp"
#include "core/processes/descriptor_limit.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

namespace {

// Long enough for late ranks, short enough for a fallback to MPI.
constexpr std::chrono::milliseconds kMostTimeout = std::chrono::seconds(30);
// Of this process, meanwhile.
constexpr std::size_t kOtherDescriptors = 64;

// Connects a group. Collective: it succeeds on all ranks or on none. Throws: Error that names the
// failed ranks and causes; PeerLostError, TimeoutError.
std::unique_ptr<Connections> connect_group(Bootstrap& bootstrap, const LinkGroup& group) {
  // Later collectives connect every pair of ranks.
  (void)make_room_for_descriptors(kPurposes * static_cast<std::size_t>(group.size) +
                                  kOtherDescriptors);
  RankAddress mine;
  std::string failure;
  LinkDescriptors descriptors;
  try {
    if (group.where != Neighbourhood::one_user) require_message_tags("host links");
    descriptors = open_descriptors(mine, group.where);
  } catch (const Error& error) {
    failure = error.what();
  }
  std::vector<std::string> addresses =
      bootstrap.all_gather(failure.empty() ? mine.str() : std::string());
  // No rank tries to connect to a failed rank.
  const bool all_listen = std::none_of(addresses.begin(), addresses.end(),
                                       [](const std::string& text) { return text.empty(); });
  std::unique_ptr<Connections> connections;
  if (all_listen) {
    const auto deadline = Connections::Clock::now() + std::min(group.timeout.get(), kMostTimeout);
    try {
      connections =
          std::make_unique<Connections>(group, std::move(addresses), std::move(descriptors));
      connections->connect_neighbours(deadline);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  std::string all;
  const std::vector<std::string> failures = bootstrap.all_gather(failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    all += fmt::format(" rank {}: {};", rank,
                       escape_control_characters(failures[rank], LineEnds::keep));
  }
  if (!all.empty()) {
    all.back() = '.';
    throw Error(
        fmt::format("Failed connecting {} ranks by TCP:{} GANTRY_HOST_INTERFACE names the "
                    "network interfaces to use",
                    group.size, all));
  }
  return connections;
}

using Clock = std::chrono::steady_clock;

// How long a rank's control message may arrive after the end of its data. A dead rank's control
// connection ends within four seconds. Threads of a busy machine read messages late.
constexpr auto kControlTimeout = std::chrono::seconds(5);
// Without progress, until LinkGroup::on_stall is called.
constexpr auto kStall = std::chrono::milliseconds(400);

class TcpLinks final : public HostLinks {
 public:
  TcpLinks(const LinkGroup& group, std::unique_ptr<Connections> connections)
      : group_(group),
        connections_(std::move(connections)),
        tag_threads_(group.tags),
        streams_(static_cast<std::size_t>(group.size)) {}

  ~TcpLinks() override { TcpLinks::leave(); }

  std::string_view name() const override {
    return group_.where == Neighbourhood::one_user ? "unix" : "tcp";
  }

  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    take_news();
    for (const Outgoing& message : sends) stream_to(message.rank).queue(message);
    for (Incoming& message : receives) stream_to(message.rank).await(message);
    move_all([](int) {});
  }

  void drive(ExchangeHandler& handler) override {
    take_news();
    std::vector<std::deque<Incoming>> received(streams_.size());
    std::vector<std::size_t> sending(streams_.size(), 0);
    const auto add = [&] {
      for (const Outgoing& message : handler.take_sends()) {
        stream_to(message.rank).queue(message);
        ++sending[static_cast<std::size_t>(message.rank)];
      }
      for (const Incoming& message : handler.take_receives()) {
        stream_to(message.rank)
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

  bool has_message(int rank) noexcept override { return stream(rank).has_arrived(); }
  LinkMonitor* monitor() noexcept override { return connections_.get(); }

  void abort() noexcept override {
    aborted_ = true;
    connections_->notify({ControlMessage::Kind::aborted, group_.rank});
    connections_->post_news();
  }

  void leave() noexcept override {
    connections_->notify({ControlMessage::Kind::left, group_.rank});
    // Ranks that wait for more data detect it now rather than when this process ends.
    for (const HostStream& link : streams_) {
      if (link.is_connected()) shutdown(link.descriptor(), SHUT_WR);
    }
  }

 private:
  // Runs until nothing is pending. Calls `on_progress(rank)`, which may queue more. The bytes of
  // messages are the caller's afterwards, so the threads of tags have none of them then.
  template <class OnProgress>
  void move_all(OnProgress on_progress) {
    try {
      move_until_done(on_progress);
    } catch (...) {
      tag_threads_.drain();
      throw;
    }
  }

  template <class OnProgress>
  void move_until_done(OnProgress& on_progress) {
    SuspendAwareTimeout countdown(group_.timeout.get());
    Clock::time_point last_progress = Clock::now();
    for (;;) {
      bool moved = false;
      for (int rank = 0; rank < group_.size; ++rank) {
        HostStream& link = stream(rank);
        if (!link.is_pending() || !link.is_connected()) continue;
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
          case HostStream::Outcome::forged:
            link_error_.fail({ControlMessage::Kind::aborted, group_.rank}, forgery_text(rank));
        }
        on_progress(rank);
      }
      const auto is_pending = [](const HostStream& link) { return link.is_pending(); };
      if (std::none_of(streams_.begin(), streams_.end(), is_pending)) return;
      if (moved) {
        countdown.restart();
        last_progress = Clock::now();
        continue;
      }
      const auto waits_for_tag = [](const HostStream& link) { return link.waits_for_tag(); };
      if (std::any_of(streams_.begin(), streams_.end(), waits_for_tag)) {
        tag_threads_.wait_briefly();  // the peer may send or receive meanwhile
        continue;
      }
      if (Clock::now() - last_progress > kStall) {
        group_.on_stall();
        last_progress = Clock::now();
      }
      if (countdown.has_expired()) {
        const std::vector<int> late = late_ranks();
        take_news();  // throws what broke the group meanwhile
        link_error_.fail_late(late);
      }
      await_progress(static_cast<int>(countdown.next_wait().count()));
    }
  }

  HostStream& stream(int rank) { return streams_[static_cast<std::size_t>(rank)]; }
  // Returns the stream for a new message, and has it connected.
  HostStream& stream_to(int rank) {
    HostStream& link = stream(rank);
    if (!link.is_connected()) connections_->request(rank);
    return link;
  }

  // nullptr where the threads would not run: each chunk is then tagged just before it is sent.
  TagThreads* tag_threads() { return tag_threads_.is_useful() ? &tag_threads_ : nullptr; }

  // Takes new connections. Throws the error of a broken group.
  void take_news() {
    link_error_.require_intact();
    if (aborted_) link_error_.fail({ControlMessage::Kind::aborted, group_.rank});
    connections_->clear_news();
    if (const auto failure = connections_->why_broken()) {
      link_error_.fail(failure->message, failure->text, failure->from);
    }
    for (NewData& made : connections_->take_data()) {
      stream(made.rank).connect(std::move(made.socket), std::move(made.tags), tag_threads());
    }
  }

  // Waits until a transfer can progress, or there is news.
  void await_progress(int wait_ms) {
    polled_.clear();
    polled_.push_back({connections_->news(), POLLIN, 0});
    for (const HostStream& link : streams_) {
      if (link.is_pending() && link.is_connected()) {
        polled_.push_back({link.descriptor(), link.wanted(), 0});
      }
    }
    if (poll(polled_.data(), polled_.size(), wait_ms) > 0 && polled_[0].revents != 0) take_news();
  }

  // The data of `rank` ended: it is dead, has left, or failed because of another rank.
  [[noreturn]] void diagnose_end(int rank) {
    const bool has_left = connections_->await_end(rank, Clock::now() + kControlTimeout);
    take_news();  // throws what other ranks report
    link_error_.fail({has_left ? ControlMessage::Kind::left : ControlMessage::Kind::lost, rank});
  }

  // Returns the ranks with unfinished sends or receives.
  std::vector<int> pending_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size; ++rank) {
      if (streams_[static_cast<std::size_t>(rank)].is_pending()) ranks.push_back(rank);
    }
    return ranks;
  }

  // The pending ranks, or those whose processes do not run. A rank that runs may wait for one that
  // does not.
  std::vector<int> late_ranks() {
    const std::vector<int> pending = pending_ranks();
    const auto replies = connections_->probe();
    std::vector<int> stopped;
    for (std::size_t rank = 0; rank < replies.size(); ++rank) {
      if (!replies[rank]) stopped.push_back(static_cast<int>(rank));
    }
    if (stopped.empty()) return pending;
    std::vector<int> both;
    std::ranges::set_intersection(pending, stopped, std::back_inserter(both));
    return both.empty() ? stopped : both;
  }

  LinkGroup group_;
  std::unique_ptr<Connections> connections_;
  TagThreads tag_threads_;
  std::vector<HostStream> streams_;
  std::vector<pollfd> polled_;
  std::atomic<bool> aborted_ = false;
  LinkError link_error_{group_, [this](const ControlMessage& why) { connections_->notify(why); }};
};

}  // namespace

std::unique_ptr<HostLinks> make_tcp_links(Bootstrap& bootstrap, const LinkGroup& group) {
  return std::make_unique<TcpLinks>(group, connect_group(bootstrap, group));
}

}  // namespace gantry
