#include "collectives/host/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <gantry/core/error.hpp>

#include "collectives/call.hpp"
#include "collectives/control/segment.hpp"
#include "job/flight_file.hpp"

namespace gantry {

namespace {

// How long the sender of a rejected message waits for its receiver in a collective that only the
// receiver's part can complete.
constexpr auto kRejectedTimeout = std::chrono::seconds(2);

// Compares all fields but the number: each rank numbers its own sends and receives.
bool same_call(Descriptor a, Descriptor b) {
  a.call = b.call = 0;
  return a == b;
}

CollectiveMismatch different_calls(std::int64_t number, int first, const Descriptor& first_call,
                                   int other, const Descriptor& other_call) {
  return CollectiveMismatch(different_calls_text(static_cast<std::uint64_t>(number), first,
                                                 first_call.str(), other, other_call.str()),
                            {first, other}, {first_call.str(), other_call.str()});
}

CollectiveMismatch different_messages(int sender, const Descriptor& sent, int receiver,
                                      const Descriptor& received) {
  return CollectiveMismatch(different_messages_text(static_cast<std::uint64_t>(sent.call), sender,
                                                    sent.str(), receiver, received.str()),
                            {sender, receiver}, {sent.str(), received.str()});
}

}  // namespace

HostEntry::HostEntry(std::shared_ptr<HostLinks> links, int rank, int size, std::size_t body_limit)
    : links_(std::move(links)),
      rank_(rank),
      size_(size),
      body_limit_(body_limit),
      stride_((sizeof(HostFrame) + body_limit + 63) / 64 * 64) {
  const auto count = static_cast<std::size_t>(size);
  buffers_ = UntouchedBytes(stride_ * count);
  received_.assign(count, 0);
  unexpected_.resize(count);
  announced_.assign(count, 0);
  settled_.assign(count, 0);
  taken_.assign(count, 0);
  early_entries_.resize(count);
  calls_.resize(count);
  uneven_.resize(count);
}

std::span<std::byte> HostEntry::buffer(int rank) {
  return std::span<std::byte>(buffers_).subspan(static_cast<std::size_t>(rank) * stride_, stride_);
}

const HostFrame& HostEntry::frame(int rank) const {
  return *reinterpret_cast<const HostFrame*>(buffers_.data() +
                                             static_cast<std::size_t>(rank) * stride_);
}

std::span<const std::byte> HostEntry::body(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return std::span<std::byte>(buffers_).subspan(at * stride_ + sizeof(HostFrame),
                                                received_[at] - sizeof(HostFrame));
}

void HostEntry::receive(const std::vector<int>& ranks) {
  std::vector<Incoming> incoming;
  for (const int rank : ranks) incoming.push_back({rank, buffer(rank)});
  links_->exchange({}, incoming);
  for (const Incoming& message : incoming) {
    (void)check_frame(message.rank, message.bytes);
  }
}

const HostFrame& HostEntry::check_frame(int rank, std::size_t bytes) {
  if (bytes < sizeof(HostFrame) || frame(rank).magic != HostFrame{}.magic) {
    links_->abort();
    throw Error(fmt::format("collective: expected a call from rank {}, but got {} other bytes",
                            rank, bytes));
  }
  received_[static_cast<std::size_t>(rank)] = bytes;
  return frame(rank);
}

bool HostEntry::keep_frame(int rank) {
  if (buffer_unexpected(rank)) return true;
  early_entries_[static_cast<std::size_t>(rank)] = copy_message(rank);
  return false;
}

std::optional<HostEntry::UnexpectedMessage> HostEntry::take_unexpected(int rank) {
  auto& unexpected = unexpected_[static_cast<std::size_t>(rank)];
  if (unexpected.empty()) return std::nullopt;
  UnexpectedMessage next = std::move(unexpected.front());
  unexpected.pop_front();
  taken_[static_cast<std::size_t>(rank)] = next.frame.number;
  return next;
}

void HostEntry::send(int rank, const HostFrame& frame, std::span<const std::byte> body) {
  const Outgoing message{rank, std::as_bytes(std::span(&frame, 1)), body};
  links_->exchange(std::span(&message, 1), {});
}

HostEntry::UnexpectedMessage HostEntry::copy_message(int rank) const {
  const auto bytes = body(rank);
  return {frame(rank), {bytes.begin(), bytes.end()}};
}

void HostEntry::settle(int rank, std::uint64_t number) {
  std::uint64_t& settled = settled_[static_cast<std::size_t>(rank)];
  settled = std::max(settled, number);
}

void HostEntry::record_rejection(int rank) {
  Descriptor sent;
  const auto bytes = body(rank);
  std::memcpy(&sent, bytes.data(), std::min(bytes.size(), sizeof sent));
  settle(rank, frame(rank).number);
  if (!rejection_) rejection_ = Rejection{rank, sent, frame(rank).what};
}

bool HostEntry::buffer_unexpected(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  switch (frame(rank).kind) {
    case HostFrame::Kind::entry:
      return drop_old_entry(rank);
    case HostFrame::Kind::message:
      unexpected_[at].push_back(copy_message(rank));
      return true;
    case HostFrame::Kind::reject:
      record_rejection(rank);
      return true;
    case HostFrame::Kind::accept:
    case HostFrame::Kind::chunk:
      return true;  // its message was withdrawn meanwhile
    case HostFrame::Kind::confirm:
      return true;  // this rank has left the collective
  }
  return true;
}

bool HostEntry::drop_old_entry(int rank) {
  const HostFrame& entry = frame(rank);
  if (entry.collective > collectives_) return false;
  drop_withdrawn(rank, entry);
  return true;
}

void HostEntry::drop_withdrawn(int rank, const HostFrame& entry) {
  auto& unexpected = unexpected_[static_cast<std::size_t>(rank)];
  if (entry.withdraws != 0 && !unexpected.empty()) unexpected.pop_back();
}

bool HostEntry::is_coming(int rank) const {
  const auto deadline = std::chrono::steady_clock::now() + kRejectedTimeout;
  while (!links_->has_message(rank)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool HostEntry::is_unsettled() const { return announced_ != settled_; }

void HostEntry::exchange_entries(const HostFrame& mine, Bodies bodies, bool moves_data,
                                 const std::vector<int>& withdrawn) {
  std::vector<HostFrame> entries(calls_.size(), mine);
  is_any_unsettled_ = is_unsettled();
  for (std::size_t at = 0; at < entries.size(); ++at) {
    entries[at].number = taken_[at];
    entries[at].collective = collectives_ + 1;
    entries[at].is_unsettled = is_any_unsettled_ ? 1 : 0;
  }
  for (const int rank : withdrawn) {
    const auto at = static_cast<std::size_t>(rank);
    entries[at].withdraws = 1;
    settled_[at] = announced_[at];
  }
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int offset = 1; offset < size_; ++offset) {
    // Each rank starts with a different peer.
    const int to = (rank_ + offset) % size_;
    const auto at = static_cast<std::size_t>(to);
    sends.push_back({to, std::as_bytes(std::span(&entries[at], 1)),
                     bodies.empty() ? std::span<const std::byte>{} : bodies[at]});
    if (!early_entries_[at]) receives.push_back({to, buffer(to)});
  }
  if (is_any_unsettled_) {
    // A rank that rejected a message may never take the entry.
    links_->exchange(sends, {});
    links_->exchange({}, receives);
  } else {
    links_->exchange(sends, receives);
  }
  std::vector<int> waiting;
  for (const Incoming& message : receives) {
    received_[static_cast<std::size_t>(message.rank)] = message.bytes;
    if (buffer_unexpected(message.rank)) waiting.push_back(message.rank);
  }
  while (!waiting.empty()) {
    if (rejection_ && std::ranges::count(waiting, rejection_->receiver) > 0 &&
        !(moves_data && is_coming(rejection_->receiver))) {
      leave_collective(waiting, moves_data);
    }
    receive(waiting);
    std::erase_if(waiting, [&](int rank) { return !buffer_unexpected(rank); });
  }
  ++collectives_;
  for (int rank = 0; rank < size_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (auto& early = early_entries_[at]) {
      std::memcpy(buffer(rank).data(), &early->frame, sizeof(HostFrame));
      if (!early->body.empty()) {
        std::memcpy(buffer(rank).data() + sizeof(HostFrame), early->body.data(),
                    early->body.size());
      }
      received_[at] = sizeof(HostFrame) + early->body.size();
      early.reset();
    }
    const HostFrame& entry = rank == rank_ ? mine : frame(rank);
    calls_[at] = entry.what;
    uneven_[at] = entry.is_uneven != 0;
    if (rank == rank_) continue;
    settle(rank, entry.number);
    is_any_unsettled_ = is_any_unsettled_ || entry.is_unsettled != 0;
    drop_withdrawn(rank, entry);
  }
}

void HostEntry::compare(const Descriptor& what) const {
  for (std::size_t rank = 1; rank < calls_.size(); ++rank) {
    Descriptor first = calls_[0];
    Descriptor other = calls_[rank];
    if (uneven_[0] && uneven_[rank]) first.count = other.count = 0;
    if (uneven_[0] != uneven_[rank] || !same_call(first, other)) {
      throw different_calls(what.call, 0, calls_[0], static_cast<int>(rank), calls_[rank]);
    }
  }
}

void HostEntry::leave_collective(const std::vector<int>& absent, bool moves_data) {
  ++collectives_;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || std::ranges::count(absent, rank) > 0) continue;
    const auto early = std::exchange(early_entries_[static_cast<std::size_t>(rank)], std::nullopt);
    drop_withdrawn(rank, early ? early->frame : frame(rank));
  }
  const Rejection rejection = *std::exchange(rejection_, std::nullopt);
  if (moves_data) {
    const HostFrame leaving{.what = rejection.received,
                            .kind = HostFrame::Kind::confirm,
                            .has_body = 1,
                            .number = static_cast<std::uint64_t>(rejection.receiver),
                            .collective = collectives_};
    std::vector<Outgoing> sends;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      sends.push_back({rank, std::as_bytes(std::span(&leaving, 1)),
                       std::as_bytes(std::span(&rejection.sent, 1))});
    }
    links_->exchange(sends, {});
  }
  throw_mismatch(rank_, rejection.sent, rejection.receiver, rejection.received);
}

void HostEntry::confirm_entries() {
  if (!is_any_unsettled_) return;
  const HostFrame mine{.what = {}, .kind = HostFrame::Kind::confirm, .collective = collectives_};
  std::vector<Outgoing> sends;
  std::vector<int> waiting;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    sends.push_back({rank, std::as_bytes(std::span(&mine, 1))});
    waiting.push_back(rank);
  }
  links_->exchange(sends, {});
  // The lowest rank that has left, the same on all ranks.
  std::optional<CollectiveMismatch> left;
  int lowest = size_;
  while (!waiting.empty()) {
    receive(waiting);
    std::erase_if(waiting, [&](int rank) {
      const HostFrame& answer = frame(rank);
      if (answer.kind != HostFrame::Kind::confirm || answer.collective != collectives_) {
        (void)keep_frame(rank);
        return false;
      }
      if (answer.has_body != 0 && rank < lowest) {
        Descriptor sent;
        const auto bytes = body(rank);
        std::memcpy(&sent, bytes.data(), std::min(bytes.size(), sizeof sent));
        left = different_messages(rank, sent, static_cast<int>(answer.number), answer.what);
        lowest = rank;
      }
      return true;
    });
  }
  if (left) throw *left;
}

void HostEntry::enter(const Descriptor& what, Bodies bodies, bool moves_data) {
  exchange_entries({.what = what, .has_body = bodies.empty() ? 0u : 1u}, bodies, moves_data);
  compare(what);
  if (moves_data) confirm_entries();
}

void HostEntry::enter_uneven(const Descriptor& what, std::span<const std::int64_t> send_counts,
                             std::span<const std::int64_t> recv_counts) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (2 * ranks * sizeof(std::int64_t) > body_limit_) {
    throw NotSupported(fmt::format(
        "all_to_all: blocks of unequal size between more than {} ranks are not supported",
        body_limit_ / (2 * sizeof(std::int64_t))));
  }
  std::vector<std::int64_t> counts(send_counts.begin(), send_counts.end());
  counts.insert(counts.end(), recv_counts.begin(), recv_counts.end());
  const std::vector<std::span<const std::byte>> bodies(ranks, std::as_bytes(std::span(counts)));
  exchange_entries({.what = what, .has_body = 1, .is_uneven = 1}, bodies, /*moves_data=*/true);
  compare(what);
  std::vector<std::vector<std::int64_t>> table;
  for (int rank = 0; rank < size_; ++rank) {
    std::vector<std::int64_t>& row = table.emplace_back(2 * ranks, 0);
    const auto bytes = rank == rank_ ? bodies[0] : body(rank);
    if (bytes.empty()) continue;
    std::memcpy(row.data(), bytes.data(),
                std::min(bytes.size(), row.size() * sizeof(std::int64_t)));
  }
  if (const auto block = compare_blocks(table)) {
    throw CollectiveMismatch(
        fmt::format("collective #{}: expected blocks of one size, but rank {} sends {} elements "
                    "to rank {}, which expects {}",
                    what.call, block->from, block->sent, block->to, block->expected),
        {block->from, block->to},
        {calls_[static_cast<std::size_t>(block->from)].str(),
         calls_[static_cast<std::size_t>(block->to)].str()});
  }
  confirm_entries();
}

void HostEntry::enter_mismatched(const Descriptor& what, int rank,
                                 const std::vector<int>& withdrawn) {
  exchange_entries({.what = what}, {}, /*moves_data=*/false, withdrawn);
  compare(what);
  throw different_calls(what.call, rank_, what, rank, calls_[static_cast<std::size_t>(rank)]);
}

HostFrame HostEntry::announce(const Descriptor& what, bool is_small) {
  return {.what = what,
          .kind = HostFrame::Kind::message,
          .has_body = is_small ? 1u : 0u,
          .number = ++announced_[static_cast<std::size_t>(what.root)]};
}

void HostEntry::throw_mismatch(int sender, const Descriptor& sent, int receiver,
                               const Descriptor& received) {
  throw different_messages(sender, sent, receiver, received);
}

void HostEntry::send_message(const Descriptor& what, std::span<const std::byte> body,
                             bool is_small) {
  const int to = what.root;
  const HostFrame mine = announce(what, is_small);
  const std::uint64_t number = mine.number;
  send(to, mine, body);
  while (!is_small) {
    if (has_early_entry(to)) enter_mismatched(what, to, {to});
    receive({to});
    const bool answers_this = frame(to).number == number;
    switch (frame(to).kind) {
      case HostFrame::Kind::accept:
        if (!answers_this) break;
        settle(to, number);
        return;
      case HostFrame::Kind::reject:
        if (!answers_this) {
          record_rejection(to);
          break;
        }
        settle(to, number);
        throw different_messages(rank_, what, to, frame(to).what);
      case HostFrame::Kind::message:
        unexpected_[static_cast<std::size_t>(to)].push_back(copy_message(to));
        break;
      case HostFrame::Kind::chunk:
      case HostFrame::Kind::confirm:
        break;
      case HostFrame::Kind::entry:
        if (!keep_frame(to)) enter_mismatched(what, to, {to});
    }
  }
}

std::optional<std::span<const std::byte>> HostEntry::receive_message(const Descriptor& recv) {
  const int from = recv.root;
  auto& unexpected = unexpected_[static_cast<std::size_t>(from)];
  while (unexpected.empty()) {
    if (has_early_entry(from)) enter_mismatched(recv, from, {});
    receive({from});
    if (!keep_frame(from)) enter_mismatched(recv, from, {});
  }
  received_message_ = *take_unexpected(from);
  const Descriptor& sent = received_message_.frame.what;
  const bool is_small = received_message_.frame.has_body != 0;
  if (sent.count != recv.count || sent.dtype != recv.dtype) {
    send(from,
         {.what = recv, .kind = HostFrame::Kind::reject, .number = received_message_.frame.number},
         std::as_bytes(std::span(&sent, 1)));
    throw different_messages(from, sent, rank_, recv);
  }
  if (is_small) return std::span<const std::byte>(received_message_.body);
  send(from,
       {.what = recv, .kind = HostFrame::Kind::accept, .number = received_message_.frame.number});
  return std::nullopt;
}

void HostEntry::throw_rejection() {
  if (!rejection_) return;
  const Rejection rejection = *std::exchange(rejection_, std::nullopt);
  throw_mismatch(rank_, rejection.sent, rejection.receiver, rejection.received);
}

std::string HostEntry::rejection_text() const {
  if (!rejection_) return {};
  return different_messages(rank_, rejection_->sent, rejection_->receiver, rejection_->received)
      .what();
}

void HostEntry::take_answers(std::span<const int> except) {
  for (int rank = 0; rank < size_; ++rank) {
    if (std::ranges::count(except, rank) > 0) continue;
    const auto at = static_cast<std::size_t>(rank);
    while (rank != rank_ && announced_[at] > settled_[at] && !early_entries_[at] &&
           links_->has_message(rank)) {
      receive({rank});
      (void)keep_frame(rank);
    }
  }
}

}  // namespace gantry
