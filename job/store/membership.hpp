#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gantry::store {

/// The ranks of a job: which are connected, have deregistered, were lost, or have ended.
///
/// Thread safety: every member may be called from any thread.
class JobMembership {
 public:
  /// Notes a connection of `rank`, or its end. A rank that connects again may do so before the end
  /// of its old connection is noted.
  void connect(int rank);
  void disconnect(int rank);
  [[nodiscard]] bool is_connected(int rank) const;
  /// Notes that `rank` left the job in order.
  void deregister(int rank);
  [[nodiscard]] bool has_deregistered(int rank) const;
  /// Notes that `rank` is lost; false if that was known.
  bool mark_lost(int rank);

  /// Ranks that are connected, in increasing order.
  [[nodiscard]] std::vector<int> connected() const;
  /// Ranks that were lost, in that order.
  [[nodiscard]] std::vector<int> lost() const;

 private:
  mutable std::mutex mutex_;
  std::multiset<int> connected_;
  std::set<int> deregistered_;
  std::vector<int> lost_;
};

/// The key of the list of ranks whose processes ended in order, each followed by a space.
inline constexpr const char* kEndedKey = "gantry/ended";

}  // namespace gantry::store
