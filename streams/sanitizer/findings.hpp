// Findings of the sanitizer.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <gantry/streams/sanitizer.hpp>

#include "streams/sanitizer/access_history.hpp"

namespace gantry::sanitizer {

/// A stream's name in reports.
struct StreamName {
  Device device;
  std::uint64_t id = 0;
};

/// A race before its call sites have names.
struct Finding {
  AccessRecord first;
  AccessRecord second;
  StreamName first_stream;
  StreamName second_stream;
  std::uint64_t count = 0;

  /// Looks up the names of call sites; no lock may be held.
  [[nodiscard]] Race race() const;
};

/// One finding for each pair of call sites, operations and kinds of access.
///
/// Thread safety: any thread.
class Findings {
 public:
  static constexpr std::size_t kMost = 1000;

  /// Counts a race. True if its pair is new.
  bool add(const Finding& finding);
  /// Counts a replay whose accesses are not known.
  void add_unknown_replay() { unknown_replays_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t unknown_replays() const {
    return unknown_replays_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::vector<Finding> all() const;
  void clear();

 private:
  using Side = std::tuple<std::uint32_t, std::uint32_t, const std::string*, bool>;

  mutable std::mutex mutex_;
  std::map<std::pair<Side, Side>, std::size_t> known_;
  std::vector<Finding> findings_;
  std::atomic<std::uint64_t> unknown_replays_{0};
};

}  // namespace gantry::sanitizer
