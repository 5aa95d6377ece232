// The accesses to memory that later ones can race with.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gantry/core/dims.hpp>
#include <gantry/core/dtype.hpp>

#include "streams/sanitizer/footprint.hpp"
#include "streams/sanitizer/timeline.hpp"

namespace gantry::sanitizer {

/// One operand of one operation.
struct AccessRecord {
  Footprint bytes;
  bool is_write = false;
  bool is_host = false;  ///< no stream: the calling thread
  StreamIndex stream = 0;
  std::uint64_t tick = 0;
  std::uint64_t operation = 0;          ///< number
  const std::string* name = nullptr;    ///< of the operation; lives as long as the process
  std::uint32_t call_site = 0;          ///< 0: unknown
  std::uint32_t capture_call_site = 0;  ///< of an operation in a graph
  bool is_replay = false;
  DType dtype = DType::u8;
  Dims sizes;
};

/// Accesses by address. Thread safety: none.
///
/// Ranges that overlap are one bucket. An access is dropped when a later one stands for it: it is
/// ordered before that one, which has all of its bytes and is a write, or both are reads. Whatever
/// races with the dropped access races with the later one, too.
class AccessHistory {
 public:
  using IsOrdered = std::function<bool(const AccessRecord&)>;

  /// Calls `found` for every access that shares bytes with `access`, if one of the two is a write
  /// and the earlier one is not ordered before.
  void find_races(const AccessRecord& access, const IsOrdered& is_ordered,
                  const std::function<void(const AccessRecord&)>& found) const;
  /// Adds an access, and drops those that it stands for, or that `is_over`.
  void add(const AccessRecord& access, const IsOrdered& is_ordered, const IsOrdered& is_over);
  /// Removes the accesses of an operation that was not submitted.
  void remove(const Footprint& bytes, std::uint64_t operation);
  /// Drops the accesses within a range, whose memory has a new owner.
  void erase(std::uintptr_t begin, std::uintptr_t end);
  void clear() { buckets_.clear(); }
  /// Calls `visit` for every access.
  void for_each(const std::function<void(const AccessRecord&)>& visit) const;

 private:
  struct Bucket {
    std::uintptr_t end = 0;
    std::vector<AccessRecord> accesses;
  };
  using Buckets = std::map<std::uintptr_t, Bucket>;

  /// The first bucket that ends behind `begin`.
  [[nodiscard]] Buckets::const_iterator first_behind(std::uintptr_t begin) const;
  [[nodiscard]] Buckets::iterator first_behind(std::uintptr_t begin);
  Bucket& bucket_of(const Footprint& bytes);

  Buckets buckets_;  ///< disjoint, by begin
};

}  // namespace gantry::sanitizer
