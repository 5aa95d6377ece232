#include <gantry/memory/snapshot.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>

#include "core/env/settings.hpp"
#include "device/platform/platform.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/pinned/host_placement.hpp"
#include "memory/policy/config.hpp"
#include "snapshots/recorded_history.hpp"
#include "snapshots/segment_source.hpp"

namespace gantry::memory {
namespace {

std::vector<HeldSegments> segments_of_heaps() {
  std::vector<HeldSegments> all;
  for (int device = 0; device < table_size(); ++device) {
    if (DeviceHeap* heap = heap_allocator().find_heap(device)) all.push_back(heap->segments());
  }
  return all;
}

struct SourcePlace {
  std::mutex mutex;
  SegmentSource source = segments_of_heaps;
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
  return source();
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

// Snapshot::settings of this process.
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

}  // namespace

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

Snapshot MemPool::snapshot() const { return memory::snapshot(*this); }

Snapshot snapshot(const MemPool& pool) {
  const Pool& of = pool.pool_.of("MemPool::snapshot");
  Snapshot result;
  result.settings = current_settings();
  HeldSegments held = of.heap->segments();
  held.look_up_frames();
  std::erase_if(held.segments, [&of](const SegmentInfo& segment) {
    return segment.pool_id != std::pair(std::int64_t{0}, static_cast<std::int64_t>(of.id));
  });
  std::ranges::sort(held.segments, {}, &SegmentInfo::address);
  result.segments = std::move(held.segments);
  return result;
}

}  // namespace gantry::memory
