#include "streams/sanitizer/tracker.hpp"

#include <algorithm>
#include <limits>

#include <gantry/core/log.hpp>

#include "device/drivers/cuda_platform.hpp"
#include "streams/sanitizer/captured_call_site.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::sanitizer {
namespace {

constexpr const char* kUnknownGraph =
    "Graph::replay: failed to check a replay for races: the graph was captured before the stream "
    "sanitizer was enabled; enable it before the capture, as GANTRY_SANITIZER does";

AccessRecord record_of(const Use& use) {
  const Region& region = use.region;
  AccessRecord record;
  record.bytes =
      Footprint(region.data, element_size(region.dtype), {region.sizes.begin(), region.sizes.end()},
                {region.strides.begin(), region.strides.end()});
  record.is_write = use.is_write;
  record.dtype = region.dtype;
  record.sizes = region.sizes;
  return record;
}

}  // namespace

Tracker& Tracker::instance() {
  static auto& tracker = *new Tracker();  // never destroyed: static objects may still free memory
  return tracker;
}

void Tracker::reset() {
  const std::lock_guard lock(mutex_);
  program_ = {};
  captures_.clear();
  streams_.clear();
  indices_.clear();
  events_.clear();
  graphs_.clear();
  unknown_graphs_.clear();
  queues_.clear();
  recorded_uses_.clear();
}

void Tracker::clear_findings() {
  findings_.clear();
  operations_.store(0, std::memory_order_relaxed);
}

std::optional<StreamPoint> Tracker::locate(NativeStream stream) const noexcept {
  StreamPoint point{.native = stream};
  if (stream.handle == nullptr) return point;
  Driver& driver = *driver_.load(std::memory_order_acquire);
  try {
    point.identity = driver.stream_identity(stream);
    point.capture = driver.capture_id(stream);
  } catch (...) {
    return std::nullopt;
  }
  return point;
}

StreamIndex Tracker::index_of(const StreamPoint& at) {
  const auto key = std::pair(at.native.device, at.identity);
  const auto [found, is_new] = indices_.try_emplace(key, static_cast<StreamIndex>(streams_.size()));
  if (is_new) {
    streams_.push_back({.name = {.device = Device::cuda(at.native.device), .id = 0}});
  }
  return found->second;
}

Tracker::Line& Tracker::line_of(std::uint64_t capture) {
  if (capture == 0) return program_;
  Line& line = captures_[capture];
  line.is_capture = true;
  return line;
}

// The legacy default stream waits for the blocking streams of its device, and they for it.
void Tracker::join_default_stream(StreamIndex stream) {
  const TrackedStream& own = streams_[stream];
  const int device = own.name.device.index;
  const auto found = indices_.find({device, 0});
  const bool is_default = found != indices_.end() && found->second == stream;
  if (!is_default && !own.is_blocking.value_or(false)) return;
  for (StreamIndex other = 0; other < streams_.size(); ++other) {
    if (other == stream || streams_[other].name.device.index != device) continue;
    const bool joins = is_default ? streams_[other].is_blocking.value_or(false)
                                  : found != indices_.end() && other == found->second;
    if (joins) program_.time.acquire(stream, program_.time.release(other));
  }
}

// The stream's index, once what precedes its work by itself is joined.
StreamIndex Tracker::arrive(Line& line, const StreamPoint& at) {
  const StreamIndex index = index_of(at);
  if (line.is_capture) return index;
  // Not asked in a capture, which a call to CUDA may end.
  std::optional<bool>& is_blocking = streams_[index].is_blocking;
  if (!is_blocking) is_blocking = synchronizes_with_default(at.native);
  join_default_stream(index);
  return index;
}

const std::string* Tracker::intern(std::string_view name) {
  const auto found = names_.find(name);
  return found != names_.end() ? &*found : &*names_.emplace(name).first;
}

void Tracker::leave_unchecked(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  unchecked_.push_back({static_cast<const std::byte*>(data), bytes});
}

void Tracker::check_memory(const void* data, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(unchecked_, MemoryRange{static_cast<const std::byte*>(data), bytes});
  if (found != unchecked_.end()) unchecked_.erase(found);
}

bool Tracker::is_unchecked(const Use& use) const noexcept {
  const auto* const data = static_cast<const std::byte*>(use.region.data);
  return std::ranges::any_of(unchecked_, [data](const MemoryRange& range) {
    return data >= range.begin && data < range.begin + range.bytes;
  });
}

bool Tracker::is_ordered(const Line& line, const AccessRecord& earlier, const AccessRecord& later) {
  return later.is_host ? line.time.is_over(earlier.stream, earlier.tick)
                       : line.time.is_ordered(earlier.stream, earlier.tick, later.stream);
}

std::vector<Finding> Tracker::find(Line& line, std::span<const AccessRecord> records,
                                   const Exempt& exempt) {
  std::vector<Finding> found;
  for (const AccessRecord& record : records) {
    line.history.find_races(
        record,
        [&](const AccessRecord& earlier) {
          return is_ordered(line, earlier, record) || (exempt && exempt(earlier));
        },
        [&](const AccessRecord& earlier) {
          found.push_back({.first = earlier,
                           .second = record,
                           .first_stream = streams_[earlier.stream].name,
                           .second_stream = record.is_host ? StreamName{.device = Device::cpu()}
                                                           : streams_[record.stream].name});
        });
  }
  return found;
}

void Tracker::add(Line& line, std::span<const AccessRecord> records) {
  for (const AccessRecord& record : records) {
    line.history.add(
        record, [&](const AccessRecord& earlier) { return is_ordered(line, earlier, record); },
        [&](const AccessRecord& earlier) {
          return line.time.is_over(earlier.stream, earlier.tick);
        });
    if (!line.is_capture) continue;
    // A loop in a capture accesses the same memory again and again.
    const auto last = line.all.size() > 64 ? line.all.end() - 64 : line.all.begin();
    const bool is_known = std::any_of(last, line.all.end(), [&](const AccessRecord& known) {
      return known.is_write == record.is_write && known.bytes.covers(record.bytes);
    });
    if (!is_known) line.all.push_back(record);
  }
}

void Tracker::report(const std::vector<Finding>& found, bool may_throw) {
  const bool throws = may_throw && mode() == Mode::throw_;
  for (const Finding& finding : found) {
    if (findings_.add(finding) && !throws) logging::warn(finding.race().str());
  }
  if (throws && !found.empty()) {
    throw RaceError(found.front().race().str(), found.front().first_stream.device.str());
  }
}

Entry Tracker::enter(Line& line, std::uint64_t capture, std::vector<AccessRecord> records,
                     std::unique_lock<std::mutex> lock) {
  const std::vector<Finding> found = find(line, records);
  Entry entry{.capture = capture, .operation = 0, .operands = {}};
  if (found.empty() || mode() != Mode::throw_) {
    add(line, records);
    for (const AccessRecord& record : records) entry.operands.push_back(record.bytes);
    if (!records.empty()) entry.operation = records.front().operation;
  }
  lock.unlock();
  report(found, true);
  return entry;
}

Entry Tracker::enter(std::string_view operation, const Stream& stream,
                     std::span<const Use> operands) {
  const std::optional<StreamPoint> at = locate(stream.native());
  if (!at) return {};
  const std::uint32_t site = captured_call_site();
  const std::uint64_t number = operations_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::unique_lock lock(mutex_);
  Line& line = line_of(at->capture);
  const StreamIndex index = arrive(line, *at);
  streams_[index].name.id = stream.id();
  std::vector<AccessRecord> records;
  for (const Use& use : operands) {
    if (is_unchecked(use)) continue;
    AccessRecord record = record_of(use);
    if (record.bytes.is_empty()) continue;
    // An operation in place is one access: the write.
    const bool is_in_place = std::ranges::any_of(records, [&](const AccessRecord& known) {
      return known.is_write && known.bytes.covers(record.bytes);
    });
    if (is_in_place) continue;
    record.stream = index;
    record.tick = line.time.tick(index);
    record.operation = number;
    record.name = intern(operation);
    record.call_site = site;
    records.push_back(record);
  }
  return enter(line, at->capture, std::move(records), std::move(lock));
}

void Tracker::enter_on_host(std::string_view operation, std::span<const Use> operands) {
  const std::uint32_t site = captured_call_site();
  std::vector<Finding> found;
  {
    const std::lock_guard lock(mutex_);
    std::vector<AccessRecord> records;
    for (const Use& use : operands) {
      if (is_unchecked(use)) continue;
      AccessRecord record = record_of(use);
      record.is_host = true;
      record.name = intern(operation);
      record.call_site = site;
      records.push_back(record);
    }
    found = find(program_, records);
  }
  report(found, true);
}

Entry Tracker::enter_replay(NativeGraph graph, const Stream& stream) {
  const std::optional<StreamPoint> at = locate(stream.native());
  if (!at) return {};
  const std::uint32_t site = captured_call_site();
  std::unique_lock lock(mutex_);
  const auto known = graphs_.find(graph);
  if (known == graphs_.end()) {
    const bool is_new = unknown_graphs_.insert(graph).second;
    lock.unlock();
    findings_.add_unknown_replay();
    if (is_new) logging::warn(kUnknownGraph);
    return {};
  }
  const std::uint64_t number = operations_.fetch_add(1, std::memory_order_relaxed) + 1;
  Line& line = line_of(at->capture);
  const StreamIndex index = arrive(line, *at);
  streams_[index].name.id = stream.id();
  // Replays of one graph do not overlap.
  if (!line.is_capture) line.time.acquire(index, known->second.last_replay);
  std::vector<AccessRecord> records = known->second.accesses;
  for (AccessRecord& record : records) {
    if (record.capture_call_site == 0) record.capture_call_site = record.call_site;
    record.call_site = site;
    record.stream = index;
    record.tick = line.time.tick(index);
    record.operation = number;
  }
  return enter(line, at->capture, std::move(records), std::move(lock));
}

void Tracker::cancel(const Entry& entry) noexcept {
  const std::lock_guard lock(mutex_);
  Line* line = &program_;
  if (entry.capture != 0) {
    const auto found = captures_.find(entry.capture);
    if (found == captures_.end()) return;
    line = &found->second;
  }
  for (const Footprint& operand : entry.operands) line->history.remove(operand, entry.operation);
  std::erase_if(line->all,
                [&](const AccessRecord& record) { return record.operation == entry.operation; });
}

}  // namespace gantry::sanitizer
