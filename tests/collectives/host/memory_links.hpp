// Links between ranks that are threads of one process, which count their messages.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "collectives/host/links/links.hpp"
#include "tests/collectives/counted_traffic.hpp"

namespace gantry::testing {

/// The mailboxes of a group, and the counts of what passes through them.
class Mailboxes {
 public:
  explicit Mailboxes(int ranks) : ranks_(ranks), boxes_(static_cast<std::size_t>(ranks * ranks)) {
    steps_.resize(static_cast<std::size_t>(ranks));
  }

  void send(int from, const Outgoing& message) {
    std::vector<std::byte> bytes(message.head.begin(), message.head.end());
    bytes.insert(bytes.end(), message.body.begin(), message.body.end());
    moved.add(from, message.rank, static_cast<std::int64_t>(bytes.size()), 1);
    const std::lock_guard lock(mutex_);
    box(from, message.rank).push_back(std::move(bytes));
    arrived_.notify_all();
  }
  void receive(int to, Incoming& message) {
    std::unique_lock lock(mutex_);
    auto& waiting = box(message.rank, to);
    arrived_.wait(lock, [&] { return !waiting.empty(); });
    const std::vector<std::byte> bytes = std::move(waiting.front());
    waiting.pop_front();
    if (bytes.size() > message.buffer.size()) throw std::length_error("a message is too long");
    if (!bytes.empty()) std::memcpy(message.buffer.data(), bytes.data(), bytes.size());
    message.bytes = bytes.size();
  }
  /// A rank has exchanged messages once more.
  void step(int rank) { ++steps_[static_cast<std::size_t>(rank)]; }

  /// Exchanges of the rank with the most. Requires that no rank exchanges.
  [[nodiscard]] std::int64_t steps() const {
    std::int64_t most = 0;
    for (const std::int64_t steps : steps_) most = std::max(most, steps);
    return most;
  }
  void reset() {
    moved.clear();
    steps_.assign(steps_.size(), 0);
  }

  TrafficTable moved;

 private:
  std::deque<std::vector<std::byte>>& box(int from, int to) {
    return boxes_[static_cast<std::size_t>(from * ranks_ + to)];
  }

  int ranks_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::deque<std::vector<std::byte>>> boxes_;
  std::vector<std::int64_t> steps_;
};

/// One rank's links. No rank of the group fails, and none sends groups of messages.
class MemoryLinks final : public HostLinks {
 public:
  MemoryLinks(std::shared_ptr<Mailboxes> boxes, int rank) : boxes_(std::move(boxes)), rank_(rank) {}

  std::string_view name() const override { return "memory"; }
  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    if (!sends.empty() || !receives.empty()) boxes_->step(rank_);
    for (const Outgoing& message : sends) boxes_->send(rank_, message);
    for (Incoming& message : receives) boxes_->receive(rank_, message);
  }
  void drive(ExchangeHandler&) override { throw std::logic_error("no groups of messages here"); }
  void abort() noexcept override {}
  void leave() noexcept override {}

 private:
  std::shared_ptr<Mailboxes> boxes_;
  int rank_;
};

}  // namespace gantry::testing
