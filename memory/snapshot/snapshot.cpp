#include <gantry/memory/snapshot.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/extend/unique_fd.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "core/env/settings.hpp"
#include "core/files/atomic_file.hpp"
#include "core/files/output_stream.hpp"
#include "memory/history/history.hpp"
#include "memory/pinned/host_pages.hpp"
#include "memory/policy/config.hpp"
#include "memory/snapshot/snapshot_json.hpp"
#include "memory/snapshot/snapshot_tool.hpp"

namespace gantry::memory {
namespace {

struct SourcePlace {
  std::mutex mutex;
  SegmentSource source;
};

SourcePlace& source_place() {
  static auto& instance = *new SourcePlace();
  return instance;
}

std::vector<HeldSegments> ask_source() {
  SegmentSource source;
  {
    SourcePlace& place = source_place();
    const std::lock_guard lock(place.mutex);
    source = place.source;
  }
  return source ? source() : std::vector<HeldSegments>{};
}

// Devices without virtual memory calls have segments with any backend.
bool expands_segments(std::string_view backend) {
  const Backend* known = find_backend(backend);
  if (known == nullptr || !known->maps_chunks) return false;
  for (int device = 0; device < device_count(); ++device) {
    if (driver().supports_virtual_memory(device)) return true;
  }
  return false;
}

namespace fs = std::filesystem;

[[noreturn]] void throw_write_error(const fs::path& path, std::string_view cause) {
  throw Error(fmt::format("save_snapshot: failed to write '{}': {}", path.string(), cause));
}

// The program that makes a file with this name from JSON; none for .json itself.
std::optional<fs::path> tool_for(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".json") return std::nullopt;
  if (extension != ".pickle" && extension != ".html") {
    throw InvalidArgument(
        fmt::format("save_snapshot: expected a file name that ends in .pickle, .json or .html, but "
                    "got '{}'",
                    path.string()));
  }
  try {
    return find_snapshot_tool();
  } catch (const Error& error) {
    throw_write_error(path, error.what());
  }
}

// A JSON snapshot in a file without a name, in the folder of `path`.
UniqueFd write_unnamed_json(const Snapshot& snapshot, const fs::path& path) {
  const auto fail = [&](int code) {
    throw_write_error(path, std::strerror(code != 0 ? code : EIO));
  };
  std::string name = (path.parent_path() / ".gantry-snapshot-XXXXXX").string();
  UniqueFd file(mkostemp(name.data(), O_CLOEXEC));
  if (!file) fail(errno);
  unlink(name.c_str());
  UniqueFd copy(fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!copy) fail(errno);
  OutputStream out(std::move(copy));
  write_json(snapshot, out);
  if (const int code = out.close(); code != 0) fail(code);
  if (lseek(file.get(), 0, SEEK_SET) != 0) fail(errno);
  return file;
}

void save_json(const Snapshot& snapshot, const fs::path& path) {
  AtomicFile file(path, "save_snapshot: ");
  write_json(snapshot, file.out());
  file.commit();
}

void save_with(const std::optional<fs::path>& tool, const Snapshot& snapshot,
               const fs::path& path) {
  if (!tool) return save_json(snapshot, path);
  const UniqueFd json = write_unnamed_json(snapshot, path);
  try {
    run_snapshot_tool(*tool, json.get(), path);
  } catch (const Error& error) {
    throw_write_error(path, error.what());
  }
}

}  // namespace

std::map<std::string, SettingValue> current_settings() {
  const AllocConfig& config = alloc_config();
  const bool splits_all = config.max_split_bytes == std::numeric_limits<std::size_t>::max();
  const std::string backend = allocator_backend();
  std::map<std::string, std::int64_t> roundup;
  for (int megabytes = 1; megabytes <= 1 << 15; megabytes *= 2) {
    roundup[std::to_string(megabytes)] = 0;
  }
  return {
      {"PYTORCH_CUDA_ALLOC_CONF", env::kAllocConf.text()},
      {"backend", backend},
      {"expandable_segments", expands_segments(backend)},
      {"garbage_collection_threshold", config.gc_threshold},
      {"graph_capture_record_stream_reuse", false},
      {"max_split_size",
       splits_all ? std::int64_t{-1} : static_cast<std::int64_t>(config.max_split_bytes)},
      {"pinned_num_register_threads", std::int64_t{host_register_threads()}},
      {"pinned_use_cuda_host_register", registers_host_pages()},
      {"release_lock_on_cudamalloc", false},
      {"roundup_power2_divisions", roundup},
  };
}

void HeldSegments::look_up_frames() {
  if (call_sites.empty()) return;
  auto call_site = call_sites.begin();
  for (SegmentInfo& segment : segments) {
    segment.frames = stacks::frames_of(*call_site++);
    for (BlockInfo& block : segment.blocks) block.frames = stacks::frames_of(*call_site++);
  }
  call_sites.clear();
}

SegmentSource set_segment_source(SegmentSource source) {
  SourcePlace& place = source_place();
  const std::lock_guard lock(place.mutex);
  return std::exchange(place.source, std::move(source));
}

// Note [Where a trace ends]
// Viewers rebuild earlier states from the segments backwards. A trace must therefore end with the
// last event that the segments include, while other threads allocate and free. Each device's
// allocator copies its segments under its lock and keeps threads out of their magazines. Every
// change of a block or segment records its event under the same protection. The events before the
// copy are exactly those that the copy includes, and later events are dropped.
Snapshot snapshot() {
  Snapshot result;
  result.settings = current_settings();
  const auto devices = static_cast<std::size_t>(device_count());
  // An allocator that is made from here on may not be asked any more.
  const std::int64_t start = history_moment_ns();
  std::vector<std::int64_t> ends(devices, start);
  const auto end_of = [&](int device) -> std::int64_t& {
    const auto index = static_cast<std::size_t>(device);
    if (index >= ends.size()) ends.resize(index + 1, start);
    return ends[index];
  };
  std::vector<HeldSegments> all_held = ask_source();
  for (const HeldSegments& held : all_held) end_of(held.device) = held.time_ns;
  for (std::size_t device = 0; device < devices; ++device) {
    record_snapshot(static_cast<int>(device), ends[device]);
  }
  // At once, before new events push old ones out.
  RecordedHistory history = recorded_history();
  for (HeldSegments& held : all_held) {
    held.look_up_frames();
    std::ranges::move(held.segments, std::back_inserter(result.segments));
  }
  std::ranges::sort(result.segments, {}, [](const SegmentInfo& segment) {
    return std::pair(segment.device, segment.address);
  });
  result.annotations = std::move(history.annotations);
  std::erase_if(result.annotations, [&](const Annotation& note) {
    return note.time_us > history.epoch_us + end_of(note.device) / 1000;
  });
  result.device_traces.resize(devices);
  for (const RecordedEvent& event : history.events) {
    const auto device = static_cast<std::size_t>(event.device);
    if (event.time_ns > end_of(event.device)) continue;
    if (device >= result.device_traces.size()) result.device_traces.resize(device + 1);
    result.device_traces[device].push_back({.action = event.action,
                                            .address = event.address,
                                            .bytes = event.bytes,
                                            .requested = event.requested,
                                            .stream = event.stream,
                                            .time_us = history.epoch_us + event.time_ns / 1000,
                                            .frames = stacks::frames_of(event.call_site),
                                            .user_metadata = history.metadata[event.metadata]});
  }
  return result;
}

void save_snapshot(const fs::path& path) {
  const std::optional<fs::path> tool = tool_for(path);
  save_with(tool, snapshot(), path);
}

void save_snapshot(const Snapshot& snapshot, const fs::path& path) {
  save_with(tool_for(path), snapshot, path);
}

Snapshot load_snapshot(const fs::path& path) {
  if (path.extension() != ".json") {
    throw InvalidArgument(fmt::format(
        "load_snapshot: expected a file name that ends in .json, but got '{}'", path.string()));
  }
  return read_json_file(path, "load_snapshot: ");
}

}  // namespace gantry::memory
