#include "ipc/offered_ranges.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/assert.hpp"
#include "ipc/socket.hpp"

namespace gantry::memory {
namespace {

bool has_any(const RunSet& set, Run whole) { return set.first_inside(whole).bytes() != 0; }

bool has_all(const RunSet& set, Run whole) {
  while (whole.bytes() != 0) {
    const Run run = set.first_inside(whole);
    if (run.bytes() == 0 || run.begin != whole.begin) return false;
    whole.begin = run.end;
  }
  return true;
}

// Removes what `set` has inside `whole`; before that calls visit(run) for each part.
template <class Visit>
void take_all(RunSet& set, Run whole, const Visit& visit) {
  for (;;) {
    const Run run = set.first_inside(whole);
    if (run.bytes() == 0) return;
    visit(run);
    set.remove(run);
  }
}
void remove_all(RunSet& set, Run whole) {
  take_all(set, whole, [](Run) {});
}

}  // namespace

bool OfferedRanges::Range::knows(Run run) const {
  return has_any(offered, run) || has_any(open, run) || has_any(withdrawn, run) ||
         has_any(refused, run);
}

OfferedRanges::Place OfferedRanges::place_of(const std::byte* data, std::size_t bytes) const {
  auto found = ranges_.upper_bound(const_cast<std::byte*>(data));
  if (found == ranges_.begin()) return {};
  --found;
  const auto begin = static_cast<std::size_t>(data - found->first);
  if (begin >= found->second.bytes || bytes > found->second.bytes - begin) return {};
  return {found->first, &found->second, {begin, begin + bytes}};
}

OfferedRanges::Range* OfferedRanges::range_of(const RangePart& part) {
  const auto found = ranges_.find(part.base);
  return found != ranges_.end() && found->second.number == part.range ? &found->second : nullptr;
}

bool OfferedRanges::find(const std::byte* data, std::size_t bytes,
                         std::span<std::byte*> addresses) const {
  const Place place = place_of(data, bytes);
  if (place.range == nullptr || !has_all(place.range->open, place.run)) return false;
  for (std::size_t member = 0; member < members_; ++member) {
    GANTRY_ASSERT(place.range->mirrors[member] != nullptr, "open memory has an unknown mirror");
    addresses[member] = place.range->mirrors[member] + place.run.begin;
  }
  return true;
}

bool OfferedRanges::is_in_transition(const std::byte* data, std::size_t bytes) const {
  const Place place = place_of(data, bytes);
  return place.range != nullptr &&
         (has_any(place.range->offered, place.run) || has_any(place.range->withdrawn, place.run));
}

// The range of an extent; nullptr while an earlier range at these addresses is in use.
OfferedRanges::Range* OfferedRanges::range_for(const BlockExtent& extent) {
  auto next = ranges_.lower_bound(extent.range);
  if (next != ranges_.end() && next->first == extent.range &&
      next->second.bytes == extent.range_bytes) {
    return &next->second;
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes > extent.range) next = before;
  }
  while (next != ranges_.end() && next->first < extent.range + extent.range_bytes) {
    if (!next->second.is_unused()) return nullptr;
    next = ranges_.erase(next);
  }
  Range& range = ranges_[extent.range];
  range.number = ++last_number_;
  range.bytes = extent.range_bytes;
  range.mirrors.assign(members_, nullptr);
  return &range;
}

std::vector<ChunkOffer> OfferedRanges::offer(const BlockExtent& extent, std::byte* begin) {
  std::vector<ChunkOffer> offers;
  Range* const range = range_for(extent);
  if (range == nullptr) return offers;
  bool goes_on = false;  // the last offer ends where the next chunk begins
  auto at = static_cast<std::size_t>(begin - extent.range);
  for (const Chunk& chunk : extent.chunks) {
    const Run run{at, at + chunk.bytes};
    at = run.end;
    if (range->knows(run)) {
      goes_on = false;
      continue;
    }
    if (!goes_on || offers.back().chunks.size() == kChunksPerPacket) {
      const RangePart part{extent.range, range->number, range->bytes, {run.begin, run.begin}};
      offers.push_back({part, {}});
    }
    goes_on = true;
    offers.back().chunks.push_back(chunk);
    offers.back().part.run.end = run.end;
  }
  for (const ChunkOffer& offer : offers) range->offered.add(offer.part.run);
  return offers;
}

bool OfferedRanges::is_offered(const RangePart& part) const {
  const auto found = ranges_.find(part.base);
  return found != ranges_.end() && found->second.number == part.range &&
         has_all(found->second.offered, part.run);
}

void OfferedRanges::accept(const RangePart& part, std::vector<std::byte*> mirrors) {
  Range* const range = range_of(part);
  if (range == nullptr) return;
  range->mirrors = std::move(mirrors);
  take_all(range->offered, part.run, [range](Run run) { range->open.add(run); });
}

void OfferedRanges::refuse(const RangePart& part) {
  Range* const range = range_of(part);
  if (range == nullptr) return;
  take_all(range->offered, part.run, [range](Run run) { range->refused.add(run); });
}

void OfferedRanges::drop(const RangePart& part) {
  if (Range* const range = range_of(part)) remove_all(range->offered, part.run);
}

std::vector<RangePart> OfferedRanges::withdraw(std::byte* address, std::size_t bytes) {
  std::vector<RangePart> parts;
  const Place place = place_of(address, bytes);
  if (place.range == nullptr) return parts;
  Range& range = ranges_[place.base];
  const auto leave = [&](Run run) {
    parts.push_back({place.base, range.number, range.bytes, run});
    range.withdrawn.add(run);
  };
  take_all(range.open, place.run, leave);
  take_all(range.offered, place.run, leave);
  remove_all(range.refused, place.run);
  return parts;
}

void OfferedRanges::forget(const RangePart& part) {
  if (Range* const range = range_of(part)) remove_all(range->withdrawn, part.run);
}

bool OfferedRanges::has_withdrawn() const {
  return std::ranges::any_of(ranges_,
                             [](const auto& known) { return !known.second.withdrawn.empty(); });
}

void OfferedRanges::keep(const std::byte* data, std::size_t bytes) {
  const Place place = place_of(data, bytes);
  GANTRY_ASSERT(place.range != nullptr && has_all(place.range->open, place.run),
                "addresses are kept that are not open");
  RunSet& kept = ranges_[place.base].kept;
  remove_all(kept, place.run);
  kept.add(place.run);
}

bool OfferedRanges::has_kept(const std::byte* address, std::size_t bytes) const {
  const Place place = place_of(address, bytes);
  return place.range != nullptr && has_any(place.range->kept, place.run);
}

bool OfferedRanges::has_kept_closed(const std::byte* address, std::size_t bytes) const {
  const Place place = place_of(address, bytes);
  if (place.range == nullptr) return false;
  for (Run rest = place.run; rest.bytes() != 0;) {
    const Run run = place.range->kept.first_inside(rest);
    if (run.bytes() == 0) return false;
    if (!has_all(place.range->open, run)) return true;
    rest.begin = run.end;
  }
  return false;
}

}  // namespace gantry::memory
