#include "tools/snapshot/torch_snapshot.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "snapshots/snapshot_json.hpp"

namespace gantry::snapshot {
namespace {

using memory::Annotation;
using memory::BlockInfo;
using memory::BlockState;
using memory::Frame;
using memory::Frames;
using memory::SegmentInfo;
using memory::SettingValue;
using memory::Snapshot;
using memory::TraceAction;
using memory::TraceEntry;
using Value = JsonDocument::Value;

constexpr std::string_view kSegment = "snapshot, segment";
constexpr std::string_view kBlock = "snapshot, block";
constexpr std::string_view kEntry = "snapshot, trace entry";

class Reader {
 public:
  explicit Reader(const JsonDocument& document) : document_(document) {}

  Snapshot read() {
    const Value& root = document_.at(document_.root());
    Snapshot snapshot;
    for (const ValueId id : required_list(root, "segments")) {
      snapshot.segments.push_back(segment(document_.at(id)));
    }
    for (const ValueId id : required_list(root, "device_traces")) {
      const JsonDocument::List* const entries = document_.list(&document_.at(id));
      if (entries == nullptr) throw InvalidArgument("snapshot: a device's history is no list");
      snapshot.device_traces.emplace_back();
      for (const ValueId event : *entries) add_entry(document_.at(event), snapshot);
    }
    if (const Value* const settings = document_.find(root, "allocator_settings")) {
      read_settings(*settings, snapshot.settings);
    }
    if (const auto* const notes = document_.list(document_.find(root, "external_annotations"))) {
      for (const ValueId id : *notes) {
        snapshot.annotations.push_back(annotation(document_.at(id)));
      }
    }
    return snapshot;
  }

 private:
  const JsonDocument::List& required_list(const Value& root, std::string_view key) const {
    const JsonDocument::List* const list = document_.list(document_.find(root, key));
    if (list != nullptr) return *list;
    throw InvalidArgument(fmt::format("snapshot: expected a dictionary with a list '{}'", key));
  }

  // The number of a key, or `fallback` if there is none.
  std::int64_t number(const Value& dict, std::string_view key, std::string_view what,
                      std::int64_t fallback) const {
    return document_.find(dict, key) == nullptr ? fallback : document_.integer(dict, key, what);
  }
  // A size or an address.
  std::uint64_t natural(const Value& dict, std::string_view key, std::string_view what,
                        std::optional<std::uint64_t> fallback = {}) const {
    const Value* const found = document_.find(dict, key);
    if (found == nullptr && fallback) return *fallback;
    const auto* const large = found == nullptr ? nullptr : std::get_if<std::uint64_t>(found);
    if (large != nullptr) return *large;
    const std::int64_t value = document_.integer(dict, key, what);
    if (value >= 0) return static_cast<std::uint64_t>(value);
    throw InvalidArgument(
        fmt::format("{}: expected '{}' of at least 0, but got {}", what, key, value));
  }
  std::string text(const Value& dict, std::string_view key) const {
    const Value* const value = document_.find(dict, key);
    const auto* const found = value == nullptr ? nullptr : std::get_if<std::string>(value);
    return found == nullptr ? std::string() : *found;
  }

  // Lists of frames are shared: each is converted once.
  Frames frames(const Value* stack) {
    const JsonDocument::List* const list = document_.list(stack);
    if (list == nullptr || list->empty()) return {};
    const auto known = stacks_.find(list);
    if (known != stacks_.end()) return known->second;
    std::vector<Frame> result;
    for (const ValueId id : *list) {
      const Value& frame = document_.at(id);
      // Torch writes 2^64 - 1 for a line that is unknown.
      const Value* const line = document_.find(frame, "line");
      const auto* const number = line == nullptr ? nullptr : std::get_if<std::int64_t>(line);
      const bool is_line =
          number != nullptr && *number > 0 && *number <= std::numeric_limits<int>::max();
      result.push_back({.filename = text(frame, "filename"),
                        .line = is_line ? static_cast<int>(*number) : 0,
                        .name = text(frame, "name")});
    }
    return stacks_.emplace(list, Frames(std::move(result))).first->second;
  }

  BlockInfo block(const Value& dict, std::uint64_t& address, std::uint64_t stream) {
    BlockInfo info;
    address = natural(dict, "address", kBlock, address);
    info.address = address;
    info.bytes = natural(dict, "size", kBlock);
    info.stream = stream;
    const std::string& state = document_.text(dict, "state", kBlock);
    if (state == name_of(BlockState::active_allocated)) {
      info.state = BlockState::active_allocated;
    } else if (state != name_of(BlockState::inactive)) {
      info.state = BlockState::active_pending_free;
    }
    if (info.state != BlockState::inactive) {
      info.requested = natural(dict, "requested_size", kBlock, info.bytes);
    }
    const Value* stack = document_.find(dict, "frames");
    if (stack == nullptr) {  // torch 2.0
      const auto* const history = document_.list(document_.find(dict, "history"));
      if (history != nullptr && !history->empty()) {
        stack = document_.find(document_.at(history->front()), "frames");
      }
    }
    info.frames = frames(stack);
    address += info.bytes;
    return info;
  }

  SegmentInfo segment(const Value& dict) {
    SegmentInfo info;
    info.device = static_cast<int>(number(dict, "device", kSegment, 0));
    info.address = natural(dict, "address", kSegment);
    info.total_bytes = natural(dict, "total_size", kSegment);
    info.allocated_bytes = natural(dict, "allocated_size", kSegment, 0);
    info.active_bytes = natural(dict, "active_size", kSegment, 0);
    info.requested_bytes = natural(dict, "requested_size", kSegment, info.active_bytes);
    info.stream = natural(dict, "stream", kSegment, 0);
    info.small = text(dict, "segment_type") == "small";
    const auto* const pool = document_.list(document_.find(dict, "segment_pool_id"));
    if (pool != nullptr && pool->size() == 2) {
      const auto* const first = std::get_if<std::int64_t>(&document_.at((*pool)[0]));
      const auto* const second = std::get_if<std::int64_t>(&document_.at((*pool)[1]));
      if (first != nullptr && second != nullptr) info.pool_id = {*first, *second};
    }
    const Value* const expandable = document_.find(dict, "is_expandable");
    const auto* const flag = expandable == nullptr ? nullptr : std::get_if<bool>(expandable);
    info.is_expandable = flag != nullptr && *flag;
    info.frames = frames(document_.find(dict, "frames"));
    std::uint64_t address = info.address;
    if (const auto* const blocks = document_.list(document_.find(dict, "blocks"))) {
      for (const ValueId id : *blocks) {
        info.blocks.push_back(block(document_.at(id), address, info.stream));
      }
    }
    return info;
  }

  void add_entry(const Value& dict, Snapshot& snapshot) {
    const std::string& action = document_.text(dict, "action", kEntry);
    for (int i = 0; i <= static_cast<int>(TraceAction::oom); ++i) {
      const auto known = static_cast<TraceAction>(i);
      if (name_of(known) != action) continue;
      TraceEntry entry;
      entry.action = known;
      entry.address = natural(dict, known == TraceAction::oom ? "device_free" : "addr", kEntry, 0);
      entry.bytes = natural(dict, "size", kEntry, 0);
      entry.stream = natural(dict, "stream", kEntry, 0);
      entry.time_us = number(dict, "time_us", kEntry, 0);
      entry.frames = frames(document_.find(dict, "frames"));
      entry.user_metadata = text(dict, "user_metadata");
      snapshot.device_traces.back().push_back(std::move(entry));
      return;
    }
  }

  void read_settings(const Value& dict, std::map<std::string, SettingValue>& settings) const {
    const auto* const items = std::get_if<JsonDocument::Dict>(&dict);
    if (items == nullptr) return;
    for (const auto& [key, id] : *items) {
      const auto* const name = std::get_if<std::string>(&document_.at(key));
      if (name == nullptr) continue;
      const Value& value = document_.at(id);
      if (const auto* const flag = std::get_if<bool>(&value)) {
        settings[*name] = *flag;
      } else if (const auto* const whole = std::get_if<std::int64_t>(&value)) {
        settings[*name] = *whole;
      } else if (const auto* const real = std::get_if<double>(&value)) {
        settings[*name] = *real;
      } else if (const auto* const words = std::get_if<std::string>(&value)) {
        settings[*name] = *words;
      } else if (const auto* const map = std::get_if<JsonDocument::Dict>(&value)) {
        std::map<std::string, std::int64_t> numbers;
        for (const auto& [inner, number] : *map) {
          const auto* const text = std::get_if<std::string>(&document_.at(inner));
          const auto* const whole = std::get_if<std::int64_t>(&document_.at(number));
          if (text != nullptr && whole != nullptr) numbers[*text] = *whole;
        }
        settings[*name] = std::move(numbers);
      }
    }
  }

  Annotation annotation(const Value& dict) const {
    constexpr std::string_view kNote = "snapshot, annotation";
    Annotation note;
    note.device = static_cast<int>(number(dict, "device", kNote, 0));
    note.time_us = number(dict, "time_us", kNote, 0);
    if (const auto* const items = std::get_if<JsonDocument::Dict>(&dict)) {
      for (const auto& [key, id] : *items) {
        const auto* const name = std::get_if<std::string>(&document_.at(key));
        const auto* const value = std::get_if<std::string>(&document_.at(id));
        if (name != nullptr && value != nullptr) note.values[*name] = *value;
      }
    }
    return note;
  }

  const JsonDocument& document_;
  std::unordered_map<const JsonDocument::List*, Frames> stacks_;
};

}  // namespace

Snapshot read_torch_snapshot(const JsonDocument& document) { return Reader(document).read(); }

}  // namespace gantry::snapshot
