// Parts of an address range, and sets of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include "core/assert.hpp"

namespace gantry {

/// A part of an address range: the bytes [begin, end), as offsets.
struct Run {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t bytes() const { return end - begin; }
  friend bool operator==(const Run&, const Run&) = default;
};

/// A set of runs that do not overlap.
///
/// Not thread-safe.
class RunSet {
 public:
  [[nodiscard]] bool empty() const { return ends_.empty(); }
  /// The run with the highest addresses. The set is not empty.
  [[nodiscard]] Run last() const {
    const auto& [begin, end] = *ends_.rbegin();
    return {begin, end};
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [begin, end] : ends_) sum += end - begin;
    return sum;
  }
  /// The first part of a run of this set that lies inside `whole`; empty if there is none.
  [[nodiscard]] Run first_inside(Run whole) const {
    auto run = ends_.upper_bound(whole.begin);
    if (run != ends_.begin() && std::prev(run)->second > whole.begin) --run;
    if (run == ends_.end() || run->first >= whole.end) return {};
    return {std::max(whole.begin, run->first), std::min(whole.end, run->second)};
  }

  /// Adds a run that overlaps none of this set. Throws: std::bad_alloc.
  void add(Run run) {
    GANTRY_ASSERT(first_inside(run).bytes() == 0, "a run is added that overlaps another one");
    ends_.emplace(run.begin, run.end);
  }
  /// Removes `part`, which lies inside one run. Throws: std::bad_alloc, unless `part` ends with
  /// that run; nothing has changed then.
  void remove(Run part) {
    const auto run = std::prev(ends_.upper_bound(part.begin));
    GANTRY_ASSERT(part.begin < part.end && part.end <= run->second,
                  "a part is removed that is not inside one run");
    if (part.end < run->second) ends_.emplace(part.end, run->second);
    run->second = part.begin;
    if (run->first == run->second) ends_.erase(run);
  }

 private:
  std::map<std::size_t, std::size_t> ends_;  ///< by begin
};

}  // namespace gantry
