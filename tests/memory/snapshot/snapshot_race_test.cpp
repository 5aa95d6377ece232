// Snapshots of allocators that are in use; with GANTRY_ALLOC_CONF=backend:native also of segments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/history.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/snapshot/snapshot_replay.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::BackwardReplay;
using gantry::testing::kKib;
using gantry::testing::kMib;

class SnapshotRaceTest : public gantry::testing::HeapTest {
 protected:
  void TearDown() override {
    record_history({.enabled = false});
    gantry::testing::HeapTest::TearDown();
  }
};

// Blocks that one thread allocates and another one frees.
class Mailbox {
 public:
  [[nodiscard]] Buffer exchange(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    return std::exchange(buffer_, std::move(buffer));
  }

 private:
  std::mutex mutex_;
  Buffer buffer_;
};

// Allocates and frees in all ways until it has done `steps` or is stopped.
class Worker {
 public:
  Worker(std::uint32_t seed, Device device, Mailbox& mailbox)
      : random_(seed),
        streams_{Stream::default_stream(device), Stream::from_pool(device)},
        mailbox_(mailbox),
        pool_(device) {}

  void run(int steps, const std::atomic<bool>& stop) {
    for (int step = 0; step < steps && !stop.load(std::memory_order_relaxed); ++step) {
      live_.push_back(next());
      const Block& newest = live_.back().block();
      if (random_() % 8 == 0) newest.allocator->record_stream(newest, streams_[random_() % 2]);
      if (random_() % 16 == 0) live_.back() = mailbox_.exchange(std::move(live_.back()));
      if (live_.size() > 5 + random_() % 10) live_.pop_front();
      if (random_() % 100 == 0) empty_cache();
      if (random_() % 300 == 0) pool_ = MemPool(streams_[0].device());
    }
    live_.clear();
  }

 private:
  [[nodiscard]] Buffer next() {
    const Stream& stream = streams_[random_() % 2];
    // Small ones come from the thread's magazines, most large ones from the heap.
    const std::size_t most = random_() % 4 == 0 ? 3 * kMib : 8 * kKib;
    const std::size_t bytes = 1 + random_() % most;
    return random_() % 16 == 0 ? pool_.allocate(stream, bytes) : allocate(stream, bytes);
  }

  std::mt19937 random_;
  const Stream streams_[2];
  Mailbox& mailbox_;
  MemPool pool_;
  std::deque<Buffer> live_;
};

void run_workers(int count, int steps, const std::atomic<bool>& stop, auto&& meanwhile) {
  Mailbox mailbox;
  std::atomic<int> running{count};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      Worker(static_cast<std::uint32_t>(i), Device::cuda(0), mailbox).run(steps, stop);
      --running;
    });
  }
  meanwhile(running);
  for (std::thread& thread : threads) thread.join();
}

// Viewers rebuild what was before an event from what is after it: they need segments that are
// exactly what the last event left.
TEST_F(SnapshotRaceTest, TheTraceLeadsBackFromTheSegments) {
  record_history({.max_entries = 20'000, .stacks = HistoryOptions::Stacks::call_site});
  constexpr int kSnapshots = 60;
  std::atomic<bool> stop{false};
  std::vector<std::string> problems;
  run_workers(4, 1'000'000'000, stop, [&](const std::atomic<int>&) {
    for (int looks = 0; looks < kSnapshots;) {
      const Snapshot now = snapshot();
      const BackwardReplay replay(now, 0);
      if (!replay.problem().empty()) problems.push_back(replay.problem());
      if (now.device_traces[0].size() < 5000) continue;  // the threads have just begun
      EXPECT_EQ(now.device_traces[0].back().action, TraceAction::snapshot);
      ++looks;
    }
    stop = true;
  });
  EXPECT_THAT(problems, ::testing::IsEmpty());
}

// With every event of the allocator in the trace, it leads back to where nothing was.
TEST_F(SnapshotRaceTest, TheTraceLeadsBackToNothing) {
  record_history({.stacks = HistoryOptions::Stacks::call_site});
  int looks = 0;
  run_workers(3, 3000, false, [&](const std::atomic<int>& running) {
    for (; running > 0 || looks == 0; ++looks) {
      const BackwardReplay replay(snapshot(), 0);
      ASSERT_EQ(replay.problem(), "") << "snapshot " << looks;
      EXPECT_EQ(replay.blocks(), 0U);
      EXPECT_EQ(replay.held_bytes(), 0U);
    }
  });
  EXPECT_EQ(BackwardReplay(snapshot(), 0).problem(), "");
}

// The event comes before the driver is asked, so it has to be taken back.
TEST_F(SnapshotRaceTest, MemoryThatTheDriverDoesNotTakeIsStillThere) {
  gantry::testing::FaultDriver driver;
  record_history();
  { const Buffer unused = allocate(Stream::current(), 30 * kMib); }
  const std::size_t held = reserved();
  driver.fail_on(allocator_backend() == "native" ? "deallocate" : "unmap", 1);
  EXPECT_THROW(empty_cache(), CudaError);
  driver.fail_nothing();
  Snapshot now = snapshot();
  EXPECT_EQ(BackwardReplay(now, 0).problem(), "");
  EXPECT_EQ(BackwardReplay(now, 0).held_bytes(), 0U);
  std::size_t listed = 0;
  for (const SegmentInfo& segment : now.segments) listed += segment.total_bytes;
  EXPECT_EQ(listed, held);
  empty_cache();
  now = snapshot();
  EXPECT_THAT(now.segments, ::testing::IsEmpty());
  EXPECT_EQ(BackwardReplay(now, 0).problem(), "");
}

// What the tests above look for is seen.
TEST(BackwardReplayTest, TellsWhatDoesNotFit) {
  const auto problem_of = [](std::vector<TraceEntry> trace) {
    Snapshot snapshot;
    snapshot.segments = {{.address = 4096,
                          .total_bytes = 4096,
                          .blocks = {{4096, 1024, 1000, BlockState::active_allocated},
                                     {5120, 1024, 900, BlockState::active_pending_free},
                                     {6144, 2048}}}};
    snapshot.device_traces = {std::move(trace)};
    return BackwardReplay(snapshot, 0).problem();
  };
  const auto event = [](TraceAction action, std::uintptr_t address, std::size_t bytes) {
    return TraceEntry{.action = action, .address = address, .bytes = bytes};
  };
  using enum TraceAction;
  const std::vector<TraceEntry> good = {
      event(segment_alloc, 4096, 4096),  event(alloc, 4096, 1024),
      event(alloc, 5120, 1024),          event(free_requested, 5120, 1024),
      event(alloc, 6144, 512),           event(free_requested, 6144, 512),
      event(free_completed, 6144, 512),  event(segment_map, 16384, 4096),
      event(segment_unmap, 18432, 2048), event(segment_unmap, 16384, 2048)};
  EXPECT_EQ(problem_of(good), "");
  const std::pair<TraceEntry, const char*> bad[] = {
      {event(alloc, 6144, 512), "allocates a block that is not there afterwards"},
      {event(alloc, 4096, 512), "allocates a block that is not there afterwards"},
      {event(alloc, 5120, 1024), "allocates a block that is freed already"},
      {event(free_requested, 6144, 512), "frees a block that is not there"},
      {event(free_requested, 4096, 1024), "frees a block that is live afterwards"},
      {event(free_completed, 4608, 512), "frees a block where another one is"},
      {event(free_completed, 7680, 1024), "frees a block outside of all segments"},
      {event(segment_alloc, 4096, 4096), "adds memory below a block"},
      {event(segment_map, 16384, 4096), "adds memory that is not held"},
      {event(segment_free, 4096, 4096), "removes memory that is still held"}};
  for (const auto& [entry, reason] : bad) {
    EXPECT_THAT(problem_of({entry}), ::testing::HasSubstr(reason));
  }
}

}  // namespace
}  // namespace gantry::memory
