#include <gantry/memory/snapshot.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/history.hpp>

#include "memory/history/history.hpp"
#include "tests/memory/history/recorded_heap.hpp"
#include "tests/snapshots/snapshot_samples.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::memory {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

class SnapshotTest : public ::testing::Test {
 protected:
  void SetUp() override { record_history({.enabled = false}); }
  void TearDown() override { record_history({.enabled = false}); }

  testing::TemporaryFolder folder_;
};

TEST_F(SnapshotTest, KnowsBlocksWithoutHistory) {
  testing::RecordedHeap heap(0);
  heap.allocate(1000);
  const testing::FakeSegments fake([&] { return heap.segments(); });
  const Snapshot now = snapshot();
  ASSERT_THAT(now.segments, SizeIs(1));
  EXPECT_EQ(now.segments[0].allocated_bytes, 1024U);
  EXPECT_EQ(now.segments[0].requested_bytes, 1000U);
  EXPECT_THAT(now.device_traces, SizeIs(device_count()));
  for (const auto& trace : now.device_traces) EXPECT_THAT(trace, IsEmpty());
}

TEST_F(SnapshotTest, SortsSegmentsByDeviceAndAddress) {
  const auto segment = [](int device, std::uintptr_t address) {
    return SegmentInfo{.device = device, .address = address};
  };
  const testing::FakeSegments fake([&] {
    return std::vector{segment(1, 0x100), segment(0, 0x900), segment(1, 0x50), segment(0, 0x300)};
  });
  std::vector<std::pair<int, std::uintptr_t>> order;
  for (const SegmentInfo& info : snapshot().segments) order.emplace_back(info.device, info.address);
  EXPECT_EQ(order, (std::vector<std::pair<int, std::uintptr_t>>{
                       {0, 0x300}, {0, 0x900}, {1, 0x50}, {1, 0x100}}));
}

TEST_F(SnapshotTest, EndsEveryTraceWithTheSnapshot) {
  GANTRY_REQUIRE_DEVICES(2);
  record_history();
  const Snapshot now = snapshot();
  ASSERT_THAT(now.device_traces, SizeIs(device_count()));
  for (const auto& trace : now.device_traces) {
    ASSERT_THAT(trace, SizeIs(1));
    EXPECT_EQ(trace[0].action, TraceAction::snapshot);
    EXPECT_GT(trace[0].time_us, std::int64_t{1'600'000'000'000'000});  // after the year 2020
  }
}

// Random work: segments agree with their blocks, and the trace leads to exactly these blocks.
TEST_F(SnapshotTest, TraceAndSegmentsBalance) {
  const Snapshot now = testing::random_snapshot(11, 4000);
  for (std::size_t device = 0; device < 2; ++device) {
    std::map<std::uintptr_t, std::size_t> live;
    std::map<std::uintptr_t, std::size_t> pending;
    std::size_t segments = 0;
    std::int64_t last = 0;
    for (const TraceEntry& entry : now.device_traces.at(device)) {
      EXPECT_LE(last, entry.time_us);
      last = entry.time_us;
      if (entry.action == TraceAction::segment_alloc) segments += entry.bytes;
      if (entry.action == TraceAction::alloc) {
        ASSERT_TRUE(live.emplace(entry.address, entry.bytes).second);
        ASSERT_FALSE(pending.contains(entry.address));
      } else if (entry.action == TraceAction::free_requested) {
        ASSERT_EQ(live.at(entry.address), entry.bytes);
        pending.insert(live.extract(entry.address));
      } else if (entry.action == TraceAction::free_completed) {
        ASSERT_EQ(pending.at(entry.address), entry.bytes);
        pending.erase(entry.address);
      }
    }
    std::map<std::uintptr_t, std::size_t> held_live;
    std::map<std::uintptr_t, std::size_t> held_pending;
    for (const SegmentInfo& segment : now.segments) {
      if (segment.device != static_cast<int>(device)) continue;
      segments -= segment.total_bytes;
      std::size_t total = 0;
      std::map<BlockState, std::size_t> bytes;
      std::size_t requested = 0;
      for (const BlockInfo& block : segment.blocks) {
        EXPECT_EQ(block.address, segment.address + total);
        total += block.bytes;
        bytes[block.state] += block.bytes;
        requested += block.requested;
        if (block.state == BlockState::active_allocated) held_live[block.address] = block.bytes;
        if (block.state == BlockState::active_pending_free) {
          held_pending[block.address] = block.bytes;
        }
      }
      EXPECT_EQ(segment.total_bytes, total);
      EXPECT_EQ(segment.allocated_bytes, bytes[BlockState::active_allocated]);
      EXPECT_EQ(segment.active_bytes,
                segment.allocated_bytes + bytes[BlockState::active_pending_free]);
      EXPECT_EQ(segment.requested_bytes, requested);
    }
    EXPECT_EQ(segments, 0U);
    EXPECT_EQ(live, held_live);
    EXPECT_EQ(pending, held_pending);
    EXPECT_FALSE(live.empty());
    EXPECT_FALSE(pending.empty());
  }
}

TEST_F(SnapshotTest, JsonIsReadBackTheSame) {
  for (const Snapshot& written :
       {Snapshot{}, testing::awkward_snapshot(), testing::random_snapshot(3, 500)}) {
    const auto path = folder_ / "x.json";
    save_snapshot(written, path);
    const Snapshot read = load_snapshot(path);
    EXPECT_EQ(read.segments, written.segments);
    EXPECT_EQ(read.device_traces, written.device_traces);
    EXPECT_EQ(read.settings, written.settings);
    EXPECT_EQ(read.annotations, written.annotations);
    EXPECT_EQ(read, written);
  }
}

TEST_F(SnapshotTest, TextThatIsNoUtf8IsReplaced) {
  Snapshot written = testing::awkward_snapshot();
  written.device_traces.at(0).at(0).user_metadata = "a\xFF\xC3(b";
  save_snapshot(written, folder_ / "x.json");
  const Snapshot read = load_snapshot(folder_ / "x.json");
  EXPECT_EQ(read.device_traces[0][0].user_metadata, "a\xEF\xBF\xBD\xEF\xBF\xBD(b");
}

TEST_F(SnapshotTest, LoadedStacksAreShared) {
  save_snapshot(testing::random_snapshot(5, 400), folder_ / "x.json");
  const Snapshot read = load_snapshot(folder_ / "x.json");
  std::map<const void*, int> identities;
  for (const TraceEntry& entry : read.device_traces.at(0)) ++identities[entry.frames.identity()];
  EXPECT_LT(identities.size(), 20U);
}

TEST_F(SnapshotTest, SettingsHaveTorchsNames) {
  const Snapshot now = snapshot();
  for (const char* name :
       {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold",
        "expandable_segments", "pinned_num_register_threads", "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse",
        "roundup_power2_divisions"}) {
    EXPECT_TRUE(now.settings.contains(name)) << name;
  }
  const bool registers = platform() == Platform::cuda;
  EXPECT_EQ(now.settings.at("pinned_use_cuda_host_register"), SettingValue(registers));
  EXPECT_EQ(std::get<std::int64_t>(now.settings.at("pinned_num_register_threads")),
            registers ? std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 16) : 1);
}

TEST_F(SnapshotTest, SegmentsExpandOnlyWhereDevicesHaveTheCalls) {
  struct WithoutRanges : gantry::testing::FaultDriver {
    bool supports_virtual_memory(int) override { return false; }
  };
  if (device_count() == 0) GTEST_SKIP() << "needs a device";
  const bool expands = allocator_backend() == "vmm" && driver().supports_virtual_memory(0);
  EXPECT_EQ(snapshot().settings.at("expandable_segments"), SettingValue(expands));
  const WithoutRanges without;
  EXPECT_EQ(snapshot().settings.at("expandable_segments"), SettingValue(false));
}

TEST_F(SnapshotTest, RefusesOtherExtensions) {
  for (const char* name : {"x", "x.txt", ".json", "x.html.gz", "x.JSON", ""}) {
    EXPECT_THAT([&] { save_snapshot(folder_ / name); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr("save_snapshot: expected a file name that ends in .pickle, "
                                    ".json or .html, but got '"),
                          HasSubstr(name))));
  }
  EXPECT_THAT([&] { static_cast<void>(load_snapshot("x.pickle")); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "load_snapshot: expected a file name that ends in .json, but got 'x.pickle'")));
}

TEST_F(SnapshotTest, NamesFilesThatCannotBeUsed) {
  const auto path = folder_ / "absent" / "x.json";
  EXPECT_THAT([&] { save_snapshot(path); },
              ThrowsMessage<Error>(HasSubstr("save_snapshot: failed to write '" + path.string() +
                                             "': No such file")));
  EXPECT_THAT([&] { static_cast<void>(load_snapshot(path)); },
              ThrowsMessage<Error>(HasSubstr("load_snapshot: failed to read '" + path.string() +
                                             "': No such file")));
  if (std::filesystem::exists("/dev/full")) {
    for (const char* name : {"full.json", "full.html", "full.pickle"}) {
      std::filesystem::create_symlink("/dev/full", folder_ / name);
      EXPECT_THAT([&] { save_snapshot(folder_ / name); },
                  ThrowsMessage<Error>(AllOf(HasSubstr("save_snapshot: failed to write '"),
                                             HasSubstr("No space left"))))
          << name;
    }
  }
}

TEST_F(SnapshotTest, RefusesContentThatIsNoSnapshot) {
  save_snapshot(testing::awkward_snapshot(), folder_ / "x.json");
  const std::string good = testing::content_of(folder_ / "x.json");
  const auto load = [&](const std::string& text) {
    std::ofstream(folder_ / "bad.json") << text;
    static_cast<void>(load_snapshot(folder_ / "bad.json"));
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_NO_THROW(load(good));
  const std::map<std::string, std::string> cases = {
      {"", "parse error"},
      {"[1, 2]", "$: expected an object with a member \"version\""},
      {"{}", "version"},
      {good.substr(0, good.size() / 2), "parse error"},
      {changed("\"version\": 1", "\"version\": 2"), "of version 2"},
      {changed("gantry-snapshot", "other"), "\"other\""},
      {changed("\"active_allocated\"", "\"lively\""), "but got 'lively'"},
      {changed("\"oom\"", "\"boom\""), "but got 'boom'"},
      {changed("\"total_size\":", "\"total\":"), "total_size"},
      {changed("\"segments\": [\n{\"device\":1", "\"segments\": [\n{\"device\":-1"),
       "expected a device of at least 0, but got -1"},
      {changed("\"stack\":1", "\"stack\":99"), "expected the number of a stack or frame"},
      {changed("\"stack\":1", "\"stack\":\"1\""), ".stack: expected an integer, but got \"1\""},
  };
  for (const auto& [text, reason] : cases) {
    EXPECT_THAT([&] { load(text); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("load_snapshot: '"),
                                                     HasSubstr("bad.json' is no snapshot: "),
                                                     HasSubstr(reason))))
        << text.substr(0, 200);
  }
}

}  // namespace
}  // namespace gantry::memory
