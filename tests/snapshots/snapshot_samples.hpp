// Snapshots for tests.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "memory/history/history.hpp"
#include "snapshots/segment_source.hpp"
#include "tests/memory/history/recorded_heap.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

/// Lets snapshot() ask `list` instead of the allocators, while it lives.
class FakeSegments {
 public:
  explicit FakeSegments(std::function<std::vector<memory::SegmentInfo>()> list) {
    real_ = memory::set_segment_source([list = std::move(list)] {
      const std::vector<memory::SegmentInfo> all = list();
      const std::int64_t now = memory::history_moment_ns();
      std::map<int, memory::HeldSegments> held;
      for (int device = 0; device < device_count(); ++device) held[device];
      for (const memory::SegmentInfo& segment : all) {
        held[segment.device].segments.push_back(segment);
      }
      std::vector<memory::HeldSegments> answers;
      for (auto& [device, answer] : held) {
        answer.device = device;
        answer.time_ns = now;
        answers.push_back(std::move(answer));
      }
      return answers;
    });
  }
  ~FakeSegments() { memory::set_segment_source(std::move(real_)); }
  FakeSegments(const FakeSegments&) = delete;
  FakeSegments& operator=(const FakeSegments&) = delete;

 private:
  memory::SegmentSource real_;
};

/// What two heaps held and did after random work; history is off again when it returns.
inline memory::Snapshot random_snapshot(std::uint32_t seed, int steps) {
  std::mt19937 random(seed);
  RecordedHeap heaps[] = {RecordedHeap(0), RecordedHeap(1, 0x7f8000000000)};
  std::vector<std::uintptr_t> live[2];
  std::vector<std::uintptr_t> pending[2];
  const auto take = [&](std::vector<std::uintptr_t>& from) {
    std::swap(from[random() % from.size()], from.back());
    const std::uintptr_t address = from.back();
    from.pop_back();
    return address;
  };
  memory::record_history({.clear = true});
  for (int step = 0; step < steps; ++step) {
    const std::size_t device = random() % 2;
    RecordedHeap& heap = heaps[device];
    const auto choice = random() % 8;
    if (choice == 0 && !pending[device].empty()) {
      heap.complete(take(pending[device]));
    } else if (choice < 4 && live[device].size() > 8) {
      const bool waits = random() % 4 == 0;
      const std::uintptr_t address = take(live[device]);
      heap.free(address, waits);
      if (waits) pending[device].push_back(address);
    } else {
      live[device].push_back(heap.allocate(1 + random() % 3'000'000, random() % 3));
    }
  }
  heaps[0].fail(std::size_t{1} << 40, 12345);
  const FakeSegments fake([&] {
    auto all = heaps[0].segments();
    auto second = heaps[1].segments();
    std::move(second.begin(), second.end(), std::back_inserter(all));
    return all;
  });
  memory::Snapshot result = memory::snapshot();
  memory::record_history({.enabled = false});
  return result;
}

/// One of everything, with texts and numbers that files get wrong.
inline memory::Snapshot awkward_snapshot() {
  using memory::BlockState;
  using memory::TraceAction;
  const memory::Frames frames({{"/a \"b\"\\c\n</script><!--.cpp", 7, "f<int>(char const&)"},
                               {"", 0, "m\xC3\xBCll \xE2\x82\xAC \xF0\x9F\x9A\x80"}});
  const memory::Frames other({{"x.cpp", 2147483647, "main", true}, {"x.cpp", 2147483647, "main"}});
  memory::Snapshot snapshot;
  snapshot.segments.push_back(
      {.device = 1,
       .address = 0xFFFFFFFFFFE00000,
       .total_bytes = 2097152,
       .allocated_bytes = 512,
       .active_bytes = 1536,
       .requested_bytes = 601,
       .stream = 0xFFFFFFFFFFFFFFFF,
       .small = true,
       .pool_id = {-1, std::int64_t{1} << 40},
       .is_expandable = true,
       .frames = frames,
       .blocks = {{0xFFFFFFFFFFE00000, 512, 1, BlockState::active_allocated, 3, frames},
                  {0xFFFFFFFFFFE00200, 1024, 600, BlockState::active_pending_free, 0, other},
                  {0xFFFFFFFFFFE00600, 2095616, 0, BlockState::inactive, 0, {}}}});
  snapshot.device_traces.resize(3);
  int i = 0;
  for (const auto action :
       {TraceAction::alloc, TraceAction::free_requested, TraceAction::free_completed,
        TraceAction::segment_alloc, TraceAction::segment_free, TraceAction::segment_map,
        TraceAction::segment_unmap, TraceAction::snapshot, TraceAction::oom}) {
    snapshot.device_traces[0].push_back({.action = action,
                                         .address = std::uintptr_t{1} << (7 * i),
                                         .bytes = std::size_t{255} << (6 * i),
                                         .requested = i < 3 ? std::size_t{200} << (6 * i) : 0,
                                         .stream = static_cast<std::uint64_t>(i),
                                         .time_us = 1'700'000'000'000'000 + 40 * i,
                                         .frames = i % 2 == 0 ? frames : other,
                                         .user_metadata = i % 3 == 0 ? "</script>'\"\t" : ""});
    ++i;
  }
  snapshot.annotations.push_back({1, -5, {{"name", "a\"b"}, {"stage", "START"}}});
  snapshot.settings = {
      {"PYTORCH_CUDA_ALLOC_CONF", std::string("a:\"b\"")},
      {"backend", std::string("vmm")},
      {"max_split_size", std::int64_t{-1}},
      {"garbage_collection_threshold", 0.25},
      {"expandable_segments", true},
      {"roundup_power2_divisions", std::map<std::string, std::int64_t>{{"1", 4}, {"2", 0}}}};
  return snapshot;
}

}  // namespace gantry::testing
