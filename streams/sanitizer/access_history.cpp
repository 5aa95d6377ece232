#include "streams/sanitizer/access_history.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/assert.hpp"

namespace gantry::sanitizer {

AccessHistory::Buckets::const_iterator AccessHistory::first_behind(std::uintptr_t begin) const {
  auto next = buckets_.upper_bound(begin);
  if (next != buckets_.begin()) {
    const auto before = std::prev(next);
    if (before->second.end > begin) return before;
  }
  return next;
}

AccessHistory::Buckets::iterator AccessHistory::first_behind(std::uintptr_t begin) {
  const auto found = std::as_const(*this).first_behind(begin);
  return buckets_.erase(found, found);  // erases nothing: it only drops the const
}

void AccessHistory::find_races(const AccessRecord& access, const IsOrdered& is_ordered,
                               const std::function<void(const AccessRecord&)>& found) const {
  for (auto at = first_behind(access.bytes.begin());
       at != buckets_.end() && at->first < access.bytes.end(); ++at) {
    for (const AccessRecord& earlier : at->second.accesses) {
      if (!earlier.is_write && !access.is_write) continue;
      if (!is_ordered(earlier) && earlier.bytes.overlaps(access.bytes)) found(earlier);
    }
  }
}

AccessHistory::Bucket& AccessHistory::bucket_of(const Footprint& bytes) {
  auto at = first_behind(bytes.begin());
  if (at != buckets_.end() && at->first <= bytes.begin() && at->second.end >= bytes.end()) {
    return at->second;
  }
  std::uintptr_t begin = bytes.begin();
  Bucket joined{.end = bytes.end(), .accesses = {}};
  while (at != buckets_.end() && at->first < bytes.end()) {
    begin = std::min(begin, at->first);
    joined.end = std::max(joined.end, at->second.end);
    joined.accesses.insert(joined.accesses.end(), at->second.accesses.begin(),
                           at->second.accesses.end());
    at = buckets_.erase(at);
  }
  GANTRY_ASSERT(at == buckets_.begin() || std::prev(at)->second.end <= begin,
                "two buckets of accesses overlap");
  return buckets_.insert_or_assign(begin, std::move(joined)).first->second;
}

void AccessHistory::add(const AccessRecord& access, const IsOrdered& is_ordered,
                        const IsOrdered& is_over) {
  if (access.bytes.is_empty()) return;
  Bucket& bucket = bucket_of(access.bytes);
  std::erase_if(bucket.accesses, [&](const AccessRecord& earlier) {
    if (is_over(earlier)) return true;
    if (earlier.is_write && !access.is_write) return false;
    return access.bytes.covers(earlier.bytes) && is_ordered(earlier);
  });
  bucket.accesses.push_back(access);
}

void AccessHistory::remove(const Footprint& bytes, std::uint64_t operation) {
  const auto found = first_behind(bytes.begin());
  if (found == buckets_.end()) return;
  std::erase_if(found->second.accesses,
                [&](const AccessRecord& access) { return access.operation == operation; });
}

void AccessHistory::erase(std::uintptr_t begin, std::uintptr_t end) {
  for (auto at = first_behind(begin); at != buckets_.end() && at->first < end;) {
    std::erase_if(at->second.accesses, [&](const AccessRecord& access) {
      return access.bytes.begin() >= begin && access.bytes.end() <= end;
    });
    at = at->second.accesses.empty() ? buckets_.erase(at) : std::next(at);
  }
}

void AccessHistory::for_each(const std::function<void(const AccessRecord&)>& visit) const {
  for (const auto& [begin, bucket] : buckets_) {
    for (const AccessRecord& access : bucket.accesses) visit(access);
  }
}

}  // namespace gantry::sanitizer
