#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gantry::store {

/// Who of a job is there, has said goodbye, was lost, or has ended.
///
/// Thread safety: every member may be called from any thread.
class Roll {
 public:
  /// Notes a connection of `rank`, and its end; of a rank that comes again the new one may be noted
  /// before the old one's end.
  void connect(int rank);
  void disconnect(int rank);
  [[nodiscard]] bool is_connected(int rank) const;
  /// Notes that `rank` left in order.
  void say_goodbye(int rank);
  [[nodiscard]] bool said_goodbye(int rank) const;
  /// Notes that `rank` is lost; false if that was known.
  bool lose(int rank);

  /// Ranks that are connected, in increasing order.
  [[nodiscard]] std::vector<int> connected() const;
  /// Ranks that were lost, in the order in which they were.
  [[nodiscard]] std::vector<int> lost() const;

 private:
  mutable std::mutex mutex_;
  std::multiset<int> connected_;
  std::set<int> goodbyes_;
  std::vector<int> lost_;
};

/// Under which a server names the ranks whose processes have ended in order, each with a space
/// behind it.
inline constexpr const char* kEndedKey = "gantry/ended";

}  // namespace gantry::store
