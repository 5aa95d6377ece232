// A snapshot as JSON, one event or segment a line. The keys are torch's; `stack` is a number in
// `stacks`, whose elements are numbers in `frames`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/files/regular_file.hpp"
#include "core/text/json.hpp"
#include "snapshots/snapshot_json.hpp"

namespace gantry::memory {
namespace {

constexpr std::string_view kFormat = "gantry-snapshot";
constexpr int kVersion = 1;

// "name": [element, …], one a line.
template <class Range, class ToJson>
void write_list(std::ostream& out, const Range& range, ToJson&& to_json) {
  out << '[';
  const char* separator = "\n";
  for (const auto& element : range) {
    out << separator << to_json(element).dump();
    separator = ",\n";
  }
  out << ']';
}

Json to_json(const SettingValue& value) {
  return std::visit([](const auto& content) { return Json(content); }, value);
}

Json to_json(const SegmentInfo& segment, SnapshotStacks& stacks) {
  Json blocks = Json::array();
  for (const BlockInfo& block : segment.blocks) {
    blocks.push_back(Json::object({{"address", block.address},
                                   {"size", block.bytes},
                                   {"requested_size", block.requested},
                                   {"state", name_of(block.state)},
                                   {"stream", block.stream},
                                   {"stack", stacks.number_of(block.frames)}}));
  }
  return Json::object(
      {{"device", segment.device},
       {"address", segment.address},
       {"total_size", segment.total_bytes},
       {"allocated_size", segment.allocated_bytes},
       {"active_size", segment.active_bytes},
       {"requested_size", segment.requested_bytes},
       {"stream", segment.stream},
       {"segment_type", segment.small ? "small" : "large"},
       {"segment_pool_id", Json::array({segment.pool_id.first, segment.pool_id.second})},
       {"is_expandable", segment.is_expandable},
       {"stack", stacks.number_of(segment.frames)},
       {"blocks", std::move(blocks)}});
}

// `size` is that of the block, unlike in torch's files.
Json to_json(const TraceEntry& entry, SnapshotStacks& stacks) {
  Json json =
      Json::object({{"action", name_of(entry.action)},
                    {entry.action == TraceAction::oom ? "device_free" : "addr", entry.address},
                    {"size", entry.bytes},
                    {"stream", entry.stream},
                    {"time_us", entry.time_us},
                    {"user_metadata", entry.user_metadata},
                    {"stack", stacks.number_of(entry.frames)}});
  if (entry.requested != 0) json.set("requested_size", entry.requested);
  return json;
}

// In the order of the enumerators.
constexpr std::array<std::string_view, 9> kActionNames{
    "alloc",         "free_requested", "free_completed",
    "segment_alloc", "segment_free",   "segment_map",
    "segment_unmap", "snapshot",       "oom"};
static_assert(kActionNames.size() == static_cast<std::size_t>(TraceAction::oom) + 1);
constexpr std::array<std::string_view, 3> kStateNames{"active_allocated", "active_pending_free",
                                                      "inactive"};
static_assert(kStateNames.size() == static_cast<std::size_t>(BlockState::inactive) + 1);

// The enumerator that has this name.
template <class Enum, class Names>
Enum named(const std::string& name, const Names& names) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  throw InvalidArgument(
      fmt::format("expected the name of an action or a state, but got '{}'", name));
}

class Reader {
 public:
  explicit Reader(const Json& root) {
    std::vector<Frame> frames;
    for (const Json& frame : root.at("frames").elements()) {
      frames.push_back({frame.at("filename").as<std::string>(), frame.at("line").as<int>(),
                        frame.at("name").as<std::string>(), frame.value_or("is_internal", false)});
    }
    for (const Json& stack : root.at("stacks").elements()) {
      std::vector<Frame> members;
      for (const Json& number : stack.elements()) {
        members.push_back(frames.at(number.as<std::size_t>()));
      }
      stacks_.emplace_back(std::move(members));
    }
  }

  [[nodiscard]] SegmentInfo segment(const Json& json) const {
    const int device = json.at("device").as<int>();
    if (device < 0) {
      throw InvalidArgument(fmt::format("expected a device of at least 0, but got {}", device));
    }
    SegmentInfo segment{
        .device = device,
        .address = json.at("address").as<std::uintptr_t>(),
        .total_bytes = json.at("total_size").as<std::size_t>(),
        .allocated_bytes = json.at("allocated_size").as<std::size_t>(),
        .active_bytes = json.at("active_size").as<std::size_t>(),
        .requested_bytes = json.at("requested_size").as<std::size_t>(),
        .stream = json.at("stream").as<std::uint64_t>(),
        .small = json.at("segment_type").as<std::string>() == "small",
        .pool_id = json.at("segment_pool_id").as<std::pair<std::int64_t, std::int64_t>>(),
        .is_expandable = json.at("is_expandable").as<bool>(),
        .frames = frames_in(json),
        .blocks = {}};
    for (const Json& block : json.at("blocks").elements()) {
      segment.blocks.push_back(
          {.address = block.at("address").as<std::uintptr_t>(),
           .bytes = block.at("size").as<std::size_t>(),
           .requested = block.at("requested_size").as<std::size_t>(),
           .state = named<BlockState>(block.at("state").as<std::string>(), kStateNames),
           .stream = block.at("stream").as<std::uint64_t>(),
           .frames = frames_in(block)});
    }
    return segment;
  }

  [[nodiscard]] TraceEntry entry(const Json& json) const {
    const TraceAction action =
        named<TraceAction>(json.at("action").as<std::string>(), kActionNames);
    const char* address = action == TraceAction::oom ? "device_free" : "addr";
    return {.action = action,
            .address = json.at(address).as<std::uintptr_t>(),
            .bytes = json.at("size").as<std::size_t>(),
            .requested = json.value_or("requested_size", std::size_t{0}),
            .stream = json.at("stream").as<std::uint64_t>(),
            .time_us = json.at("time_us").as<std::int64_t>(),
            .frames = frames_in(json),
            .user_metadata = json.at("user_metadata").as<std::string>()};
  }

  [[nodiscard]] static Annotation annotation(const Json& json) {
    return {.device = json.at("device").as<int>(),
            .time_us = json.at("time_us").as<std::int64_t>(),
            .values = json.at("values").as<std::map<std::string, std::string>>()};
  }

  [[nodiscard]] static SettingValue setting(const Json& json) {
    if (json.is_bool()) return json.as<bool>();
    if (json.is_integer()) return json.as<std::int64_t>();
    if (json.is_number()) return json.as<double>();
    if (json.is_string()) return json.as<std::string>();
    return json.as<std::map<std::string, std::int64_t>>();
  }

 private:
  [[nodiscard]] const Frames& frames_in(const Json& json) const {
    return stacks_.at(json.at("stack").as<std::size_t>());
  }

  std::vector<Frames> stacks_;
};

Snapshot snapshot_in(const Json& root) {
  const int version = root.at("version").as<int>();
  if (root.at("format") != kFormat || version != kVersion) {
    throw InvalidArgument(fmt::format("expected format {} of version {}, but got {} of version {}",
                                      kFormat, kVersion, root.at("format").dump(), version));
  }
  const Reader reader(root);
  Snapshot snapshot;
  for (const auto& [name, value] : root.at("allocator_settings").members()) {
    snapshot.settings[name] = Reader::setting(value);
  }
  for (const Json& json : root.at("external_annotations").elements()) {
    snapshot.annotations.push_back(Reader::annotation(json));
  }
  for (const Json& json : root.at("segments").elements())
    snapshot.segments.push_back(reader.segment(json));
  for (const Json& trace : root.at("device_traces").elements()) {
    auto& entries = snapshot.device_traces.emplace_back();
    for (const Json& json : trace.elements()) entries.push_back(reader.entry(json));
  }
  return snapshot;
}

[[noreturn]] void throw_read_error(std::string_view name, std::string_view prefix) {
  throw Error(fmt::format("{}failed to read '{}': {}", prefix, name,
                          std::strerror(errno != 0 ? errno : EIO)));
}

std::string text_of(std::istream& in, std::string_view name, std::string_view prefix) {
  std::string text;
  std::vector<char> buffer(1 << 16);
  errno = 0;
  do {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    text.append(buffer.data(), static_cast<std::size_t>(in.gcount()));
  } while (in);
  if (in.bad()) throw_read_error(name, prefix);
  return text;
}

}  // namespace

std::string_view name_of(TraceAction action) {
  return kActionNames.at(static_cast<std::size_t>(action));
}

std::string_view name_of(BlockState state) {
  return kStateNames.at(static_cast<std::size_t>(state));
}

void write_json(const Snapshot& snapshot, std::ostream& out) {
  SnapshotStacks stacks(snapshot);
  Json settings = Json::object();
  for (const auto& [name, value] : snapshot.settings) settings.set(name, to_json(value));
  out << "{\"format\": \"" << kFormat << "\",\n\"version\": " << kVersion
      << ",\n\"allocator_settings\": " << settings.dump() << ",\n\"frames\": ";
  write_list(out, stacks.frames(), [](const Frame* frame) {
    return Json::object({{"filename", frame->filename},
                         {"line", frame->line},
                         {"name", frame->name},
                         {"is_internal", frame->is_internal}});
  });
  out << ",\n\"stacks\": ";
  write_list(out, stacks.stacks(), [](const auto& stack) { return Json(stack); });
  out << ",\n\"external_annotations\": ";
  write_list(out, snapshot.annotations, [](const Annotation& note) {
    return Json::object(
        {{"device", note.device}, {"time_us", note.time_us}, {"values", note.values}});
  });
  out << ",\n\"segments\": ";
  write_list(out, snapshot.segments,
             [&](const SegmentInfo& segment) { return to_json(segment, stacks); });
  out << ",\n\"device_traces\": [";
  const char* separator = "\n";
  for (const auto& trace : snapshot.device_traces) {
    out << separator;
    separator = ",\n";
    write_list(out, trace, [&](const TraceEntry& entry) { return to_json(entry, stacks); });
  }
  out << "]}\n";
}

Snapshot read_json(std::istream& in, std::string_view name, std::string_view prefix) {
  const std::string text = text_of(in, name, prefix);
  try {
    return read_json(Json::parse(text), snapshot_in);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}'{}' is no snapshot: {}", prefix, name, error.what()));
  } catch (const std::out_of_range& error) {
    throw InvalidArgument(
        fmt::format("{}'{}' is no snapshot: expected the number of a stack or frame in it, but got "
                    "a larger one",
                    prefix, name));
  }
}

Snapshot read_json_file(const std::filesystem::path& path, std::string_view prefix) {
  if (const std::string problem = why_not_regular(path.string()); !problem.empty()) {
    throw Error(fmt::format("{}failed to read '{}': {}", prefix, path.string(), problem));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_read_error(path.string(), prefix);
  return read_json(file, path.string(), prefix);
}

}  // namespace gantry::memory
