// The transfers of a model and of a run, side by side.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/traffic.hpp"

namespace gantry::testing {

/// Bytes and messages by ordered pair of ranks.
///
/// Thread safety: add().
class TrafficTable {
 public:
  void add(const Transfer& transfer) {
    add(transfer.from, transfer.to, transfer.bytes, transfer.messages);
  }
  void add(int from, int to, std::int64_t bytes, std::int64_t messages) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[{from, to}];
    entry.bytes += bytes;
    entry.messages += messages;
  }
  void add(const TrafficTable& other) {
    for (const auto& [pair, entry] : other.entries_) {
      add(pair.first, pair.second, entry.bytes, entry.messages);
    }
  }
  void clear() { entries_.clear(); }
  [[nodiscard]] bool empty() const { return entries_.empty(); }

  /// The first pair that differs from the run's, as text; empty if none does.
  [[nodiscard]] std::string difference(const TrafficTable& run) const {
    for (const auto& [pair, entry] : entries_) {
      const auto found = run.entries_.find(pair);
      const Entry other = found == run.entries_.end() ? Entry{} : found->second;
      if (!(entry == other)) return text(pair, entry, other);
    }
    for (const auto& [pair, entry] : run.entries_) {
      if (!entries_.contains(pair)) return text(pair, {}, entry);
    }
    return {};
  }

 private:
  struct Entry {
    std::int64_t bytes = 0;
    std::int64_t messages = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  static std::string text(const std::pair<int, int>& pair, const Entry& model, const Entry& run) {
    return fmt::format(
        "rank {} to rank {}: the model has {} bytes in {} messages, the run {} bytes in {}",
        pair.first, pair.second, model.bytes, model.messages, run.bytes, run.messages);
  }

  std::mutex mutex_;
  std::map<std::pair<int, int>, Entry> entries_;
};

}  // namespace gantry::testing
