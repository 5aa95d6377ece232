#include "streams/sanitizer/findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/stacks/call_site.hpp"

namespace gantry::sanitizer {
namespace {

Access access_of(const AccessRecord& record, const StreamName& stream) {
  return {.operation = *record.name,
          .is_write = record.is_write,
          .is_host = record.is_host,
          .device = stream.device,
          .stream = stream.id,
          .dtype = record.dtype,
          .sizes = record.sizes,
          .call_site = stacks::name_of_call_site(record.call_site),
          .captured_at = stacks::name_of_call_site(record.capture_call_site)};
}

// The call that would have made the order.
std::string_view remedy(const Race& race) {
  if (race.second.operation == "free") {
    return "call record_stream() with the first stream before the free, or make the second stream "
           "wait for the first";
  }
  if (race.second.is_host) return "synchronize with the first stream before";
  return "make the second stream wait for the first";
}

}  // namespace

std::string Access::str() const {
  std::string text = fmt::format("{} {} {} [{}]", operation, is_write ? "writes" : "reads",
                                 name(dtype), fmt::join(sizes.begin(), sizes.end(), ", "));
  text += is_host ? std::string(" on the host")
                  : fmt::format(" on stream {} of {}", stream, device.str());
  if (!call_site.empty()) text += fmt::format(", at {}", call_site);
  if (!captured_at.empty()) text += fmt::format(", in a graph captured at {}", captured_at);
  return text;
}

std::string Race::str() const {
  return fmt::format(
      "{}: expected an order after {} on the same memory ({:#x}), but got none; {}\n"
      "  first:  {}\n  second: {}",
      second.operation, first.operation, address, remedy(*this), first.str(), second.str());
}

std::string Report::str() const {
  std::string text;
  if (races.empty()) text = fmt::format("no race in {} operations\n", operations);
  for (const Race& race : races) text += fmt::format("{}\n  times:  {}\n", race.str(), race.count);
  if (unknown_replays != 0) {
    text += fmt::format("not checked: {} replays of graphs that were captured before enable()\n",
                        unknown_replays);
  }
  return text;
}

Race Finding::race() const {
  return {.first = access_of(first, first_stream),
          .second = access_of(second, second_stream),
          .address = std::max(first.bytes.begin(), second.bytes.begin()),
          .count = count};
}

bool Findings::add(const Finding& finding) {
  const auto side = [](const AccessRecord& record) {
    return Side{record.call_site, record.capture_call_site, record.name, record.is_write};
  };
  const std::lock_guard lock(mutex_);
  const auto key = std::pair(side(finding.first), side(finding.second));
  const auto known = known_.find(key);
  if (known != known_.end()) {
    ++findings_[known->second].count;
    return false;
  }
  if (findings_.size() >= kMost) return false;
  findings_.push_back(finding);
  findings_.back().count = 1;
  known_.emplace(key, findings_.size() - 1);
  return true;
}

std::vector<Finding> Findings::all() const {
  const std::lock_guard lock(mutex_);
  return findings_;
}

void Findings::clear() {
  const std::lock_guard lock(mutex_);
  known_.clear();
  findings_.clear();
  unknown_replays_.store(0, std::memory_order_relaxed);
}

}  // namespace gantry::sanitizer
