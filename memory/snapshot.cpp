#include <gantry/memory/snapshot.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <string_view>
#include <tuple>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/config.hpp"
#include "memory/history.hpp"
#include "memory/snapshot_files.hpp"
#include "memory/snapshot_stacks.hpp"

namespace gantry::memory {
namespace {

struct SegmentSource {
  std::mutex mutex;
  std::function<std::vector<SegmentInfo>()> list;
};

SegmentSource& segment_source() {
  static auto& instance = *new SegmentSource();
  return instance;
}

std::vector<SegmentInfo> held_segments() {
  std::function<std::vector<SegmentInfo>()> list;
  {
    SegmentSource& source = segment_source();
    const std::lock_guard lock(source.mutex);
    list = source.list;
  }
  std::vector<SegmentInfo> segments;
  if (list) segments = list();
  std::sort(segments.begin(), segments.end(), [](const SegmentInfo& a, const SegmentInfo& b) {
    return std::tie(a.device, a.address) < std::tie(b.device, b.address);
  });
  return segments;
}

std::map<std::string, SettingValue> current_settings() {
  const AllocConfig& config = alloc_config();
  const bool splits_all = config.max_split_bytes == std::numeric_limits<std::size_t>::max();
  const std::string backend = allocator_backend();
  std::map<std::string, std::int64_t> roundup;
  for (int megabytes = 1; megabytes <= 1 << 15; megabytes *= 2) {
    roundup[std::to_string(megabytes)] = 0;
  }
  return {
      {"PYTORCH_CUDA_ALLOC_CONF", env::get("GANTRY_ALLOC_CONF").value_or("")},
      {"backend", backend},
      {"expandable_segments", backend == "vmm"},
      {"garbage_collection_threshold", config.gc_threshold},
      {"graph_capture_record_stream_reuse", false},
      {"max_split_size",
       splits_all ? std::int64_t{-1} : static_cast<std::int64_t>(config.max_split_bytes)},
      {"pinned_num_register_threads", std::int64_t{1}},
      {"pinned_use_cuda_host_register", false},
      {"release_lock_on_cudamalloc", false},
      {"roundup_power2_divisions", roundup},
  };
}

enum class Format { pickle, json, html };

Format format_of(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".pickle") return Format::pickle;
  if (extension == ".json") return Format::json;
  if (extension == ".html") return Format::html;
  throw InvalidArgument(
      fmt::format("save_snapshot: a file name that ends in .pickle, .json or .html was expected, "
                  "but got '{}'",
                  path.string()));
}

[[noreturn]] void throw_file_error(std::string_view op, std::string_view what,
                                   const std::filesystem::path& path, int code) {
  throw Error(fmt::format("{}: '{}' cannot be {}: {}", op, path.string(), what,
                          code != 0 ? std::strerror(code) : "unknown reason"));
}

}  // namespace

std::string_view name_of(TraceAction action) {
  switch (action) {
    case TraceAction::alloc:
      return "alloc";
    case TraceAction::free_requested:
      return "free_requested";
    case TraceAction::free_completed:
      return "free_completed";
    case TraceAction::segment_alloc:
      return "segment_alloc";
    case TraceAction::segment_free:
      return "segment_free";
    case TraceAction::segment_map:
      return "segment_map";
    case TraceAction::segment_unmap:
      return "segment_unmap";
    case TraceAction::snapshot:
      return "snapshot";
    case TraceAction::oom:
      return "oom";
  }
  return "unknown";
}

std::string_view name_of(BlockState state) {
  switch (state) {
    case BlockState::active_allocated:
      return "active_allocated";
    case BlockState::active_pending_free:
      return "active_pending_free";
    case BlockState::inactive:
      return "inactive";
  }
  return "unknown";
}

SnapshotStacks number_stacks(const Snapshot& snapshot) {
  SnapshotStacks stacks;
  for (const SegmentInfo& segment : snapshot.segments) {
    static_cast<void>(stacks.number_of(segment.frames));
    for (const BlockInfo& block : segment.blocks) {
      static_cast<void>(stacks.number_of(block.frames));
    }
  }
  for (const auto& trace : snapshot.device_traces) {
    for (const TraceEntry& entry : trace) static_cast<void>(stacks.number_of(entry.frames));
  }
  return stacks;
}

std::function<std::vector<SegmentInfo>()> set_segment_source(
    std::function<std::vector<SegmentInfo>()> source) {
  SegmentSource& place = segment_source();
  const std::lock_guard lock(place.mutex);
  return std::exchange(place.list, std::move(source));
}

Snapshot snapshot() {
  Snapshot result;
  result.settings = current_settings();
  const int devices = device_count();
  for (int device = 0; device < devices; ++device) {
    record_trace(device, TraceAction::snapshot, 0, 0, 0, 0);
  }
  result.segments = held_segments();
  RecordedHistory history = recorded_history();
  result.annotations = std::move(history.annotations);
  result.device_traces.resize(static_cast<std::size_t>(devices));
  for (const RecordedEvent& event : history.events) {
    const auto device = static_cast<std::size_t>(event.device);
    if (device >= result.device_traces.size()) result.device_traces.resize(device + 1);
    result.device_traces[device].push_back({.action = event.action,
                                            .address = event.address,
                                            .bytes = event.bytes,
                                            .stream = event.stream,
                                            .time_us = history.epoch_us + event.time_ns / 1000,
                                            .frames = frames_of(event.call_site),
                                            .user_metadata = history.metadata[event.metadata]});
  }
  return result;
}

void save_snapshot(const std::filesystem::path& path) {
  static_cast<void>(format_of(path));
  save_snapshot(snapshot(), path);
}

void save_snapshot(const Snapshot& snapshot, const std::filesystem::path& path) {
  const Format format = format_of(path);
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (!file) throw_file_error("save_snapshot", "written", path, errno);
  switch (format) {
    case Format::pickle:
      write_pickle(snapshot, file);
      break;
    case Format::json:
      write_json(snapshot, file);
      break;
    case Format::html:
      write_html(snapshot, file);
      break;
  }
  file.close();
  if (!file) throw_file_error("save_snapshot", "written", path, errno);
}

Snapshot load_snapshot(const std::filesystem::path& path) {
  if (path.extension() != ".json") {
    throw InvalidArgument(fmt::format(
        "load_snapshot: a file name that ends in .json was expected, but got '{}'", path.string()));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_file_error("load_snapshot", "read", path, errno);
  return read_json(file, path.string());
}

}  // namespace gantry::memory
