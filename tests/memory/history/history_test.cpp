#include <gantry/memory/history.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/snapshot.hpp>

#include "snapshots/recorded_history.hpp"
#include "snapshots/segment_source.hpp"
#include "tests/memory/history/recorded_heap.hpp"
#include "tests/support/device_fixture.hpp"

// Outside of namespace gantry, as a program's functions are; not inlined, so that stacks show them.
[[gnu::noinline]] std::uint32_t history_test_user_call() {
  const std::uint32_t site = gantry::memory::capture_call_site();
  asm volatile("");  // no tail call
  return site;
}
[[gnu::noinline]] std::uint32_t history_test_outer_call() {
  const std::uint32_t site = history_test_user_call();
  asm volatile("");
  return site;
}

namespace gantry::memory {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Contexts = HistoryOptions::Contexts;
using Stacks = HistoryOptions::Stacks;

class HistoryTest : public ::testing::Test {
 protected:
  void SetUp() override { record_history({.enabled = false}); }
  void TearDown() override {
    record_history({.enabled = false});
    set_history_metadata("");
  }
};

void note(std::uint64_t number, std::uint64_t stream = 0) {
  record_trace(0, TraceAction::alloc, 0x1000 + number, 512, stream, 0);
}

std::vector<std::uintptr_t> addresses_of(const std::vector<RecordedEvent>& events) {
  std::vector<std::uintptr_t> addresses;
  for (const RecordedEvent& event : events) addresses.push_back(event.address);
  return addresses;
}

TEST_F(HistoryTest, RecordsNothingWhileOff) {
  EXPECT_FALSE(recording_history());
  EXPECT_EQ(capture_call_site(), 0U);
  note(1);
  EXPECT_THAT(recorded_history().events, IsEmpty());
  record_history();
  EXPECT_TRUE(recording_history());
  EXPECT_THAT(recorded_history().events, IsEmpty());
}

TEST_F(HistoryTest, KeepsEveryFieldInOrder) {
  record_history();
  record_trace(3, TraceAction::free_requested, 0xABCD, 1024, 77, 0, 1000);
  record_trace(1, TraceAction::oom, 123456, 4096, 0, 0);
  const RecordedHistory history = recorded_history();
  ASSERT_THAT(history.events, SizeIs(2));
  const RecordedEvent& first = history.events[0];
  EXPECT_EQ(first.device, 3);
  EXPECT_EQ(first.action, TraceAction::free_requested);
  EXPECT_EQ(first.address, 0xABCDU);
  EXPECT_EQ(first.bytes, 1024U);
  EXPECT_EQ(first.requested, 1000U);
  EXPECT_EQ(first.stream, 77U);
  EXPECT_EQ(history.events[1].requested, 0U);
  EXPECT_EQ(history.events[1].action, TraceAction::oom);
  EXPECT_LE(first.time_ns, history.events[1].time_ns);
}

TEST_F(HistoryTest, DropsTheOldestWhenFull) {
  record_history({.max_entries = 100});
  for (std::uint64_t i = 0; i < 50'000; ++i) note(i);
  const auto addresses = addresses_of(recorded_history().events);
  ASSERT_THAT(addresses, SizeIs(100));
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(addresses[i], 0x1000 + 49'900 + i);
}

TEST_F(HistoryTest, BoundsTheMemoryOfAllThreadsAndStaysContiguous) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEvents = 20'000;
  constexpr std::size_t kKept = 10'000;
  record_history({.max_entries = kKept});
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (std::uint64_t i = 0; i < kEvents; ++i) note(i, t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto events = recorded_history().events;
  EXPECT_THAT(events, SizeIs(kKept));
  std::map<std::uint64_t, std::vector<std::uintptr_t>> by_thread;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i > 0) {
      EXPECT_LE(events[i - 1].time_ns, events[i].time_ns);
    }
    by_thread[events[i].stream].push_back(events[i].address);
  }
  for (const auto& [thread, addresses] : by_thread) {
    EXPECT_EQ(addresses.back(), 0x1000 + kEvents - 1) << thread;
    for (std::size_t i = 1; i < addresses.size(); ++i) {
      ASSERT_EQ(addresses[i], addresses[i - 1] + 1) << thread;
    }
  }
}

TEST_F(HistoryTest, HidesWhatAnIdleThreadRecordedBeforeTheDrop) {
  record_history({.max_entries = 1024});
  std::thread([] { note(1, 5); }).join();  // leaves a chunk that is never full
  note(2, 6);
  for (std::uint64_t i = 0; i < 10'000; ++i) note(i, 7);
  EXPECT_THAT(recorded_history().events, Each(Field(&RecordedEvent::stream, 7U)));
}

TEST_F(HistoryTest, KeepsEventsOfEndedThreads) {
  record_history({.max_entries = 1000});
  for (std::uint64_t t = 0; t < 200; ++t) {
    std::thread([t] {
      for (std::uint64_t i = 0; i < 3; ++i) note(3 * t + i);
    }).join();
  }
  const auto addresses = addresses_of(recorded_history().events);
  ASSERT_THAT(addresses, SizeIs(600));
  for (std::uint64_t i = 0; i < 600; ++i) EXPECT_EQ(addresses[i], 0x1000 + i);
}

struct NotesAtTheEnd {
  bool armed = false;
  ~NotesAtTheEnd() {
    if (armed) note(2);
  }
};

TEST_F(HistoryTest, KeepsEventsOfThreadLocalDestructors) {
  record_history();
  std::thread([] {
    static thread_local NotesAtTheEnd at_end;
    at_end.armed = true;
    note(1);  // what the history keeps for the thread is destroyed before at_end
  }).join();
  EXPECT_THAT(addresses_of(recorded_history().events), ElementsAre(0x1001, 0x1002));
}

TEST_F(HistoryTest, ForgetsWhenClearedOrSwitchedOff) {
  record_history();
  note(1);
  record_history({.clear = true});
  note(2);
  record_history();  // goes on
  note(3);
  EXPECT_THAT(addresses_of(recorded_history().events), ElementsAre(0x1002, 0x1003));
  record_history({.enabled = false});
  EXPECT_THAT(recorded_history().events, IsEmpty());
  record_history();
  EXPECT_THAT(recorded_history().events, IsEmpty());
}

TEST_F(HistoryTest, WithoutEntriesOnlyStacksAreKept) {
  record_history({.max_entries = 0});
  EXPECT_NE(history_test_user_call(), 0U);
  note(1);
  annotate_history({{"name", "x"}}, Device::cuda(0));
  EXPECT_THAT(recorded_history().events, IsEmpty());
  EXPECT_THAT(recorded_history().annotations, IsEmpty());
}

TEST_F(HistoryTest, ContextsDecideWhatHasStacks) {
  struct Row {
    Contexts contexts;
    bool alloc_captures, free_captures, trace_has_stacks;
  };
  for (const Row& row :
       {Row{Contexts::never, false, false, false}, Row{Contexts::state, true, false, false},
        Row{Contexts::alloc, true, false, true}, Row{Contexts::all, true, true, true}}) {
    record_history({.contexts = row.contexts, .clear = true});
    EXPECT_EQ(capture_call_site() != 0, row.alloc_captures);
    EXPECT_EQ(capture_call_site(TraceAction::segment_alloc) != 0, row.alloc_captures);
    EXPECT_EQ(capture_call_site(TraceAction::free_requested) != 0, row.free_captures);
    record_trace(0, TraceAction::alloc, 1, 1, 0, 42);
    EXPECT_EQ(recorded_history().events.at(0).call_site, row.trace_has_stacks ? 42U : 0U);
  }
  record_history({.stacks = Stacks::none});
  EXPECT_EQ(capture_call_site(), 0U);
}

TEST_F(HistoryTest, EqualStacksHaveEqualNumbers) {
  for (const Stacks stacks : {Stacks::full, Stacks::call_site}) {
    record_history({.stacks = stacks});
    std::vector<std::uint32_t> same;
    for (int i = 0; i < 3; ++i) same.push_back(history_test_user_call());
    EXPECT_NE(same[0], 0U);
    EXPECT_THAT(same, Each(same[0]));
    EXPECT_EQ(stacks::frames_of(same[0]).identity(), stacks::frames_of(same[0]).identity());
  }
  EXPECT_THAT(stacks::frames_of(0), IsEmpty());
  EXPECT_THAT(stacks::frames_of(0xFFFFFFFF), IsEmpty());
}

TEST_F(HistoryTest, StacksBeginAtTheCaller) {
  if (GANTRY_TEST_HAS_SYMBOLS == 0) GTEST_SKIP() << "this build has no libbacktrace";
  record_history({.stacks = Stacks::full});
  const Frames full = stacks::frames_of(history_test_outer_call());
  ASSERT_GE(full.size(), 3U);
  EXPECT_THAT(full[0].name, HasSubstr("history_test_user_call"));
  EXPECT_THAT(full[1].name, HasSubstr("history_test_outer_call"));
  EXPECT_THAT(full[2].name, HasSubstr("HistoryTest_StacksBeginAtTheCaller_Test::TestBody"));
  for (const Frame& frame : full) {
    EXPECT_THAT(frame.name, Not(HasSubstr("capture_call_site")));
    EXPECT_THAT(frame.name, Not(HasSubstr("intern_call_stack")));
  }
  record_history({.stacks = Stacks::call_site});
  const Frames site = stacks::frames_of(history_test_outer_call());
  ASSERT_EQ(site.size(), 1U);
  EXPECT_EQ(site[0], full[0]);
}

TEST_F(HistoryTest, FramesHaveFilesAndLines) {
  if (GANTRY_TEST_HAS_SYMBOLS == 0) GTEST_SKIP() << "this build has no libbacktrace";
  record_history();
  const Frames frames = stacks::frames_of(history_test_user_call());
  ASSERT_THAT(frames, Not(IsEmpty()));
  if (frames[0].line == 0) GTEST_SKIP() << "this build has no debug information";
  EXPECT_THAT(frames[0].filename, EndsWith("history_test.cpp"));
  EXPECT_NEAR(frames[0].line, 21, 2);  // the call above
}

TEST_F(HistoryTest, MetadataBelongsToTheThread) {
  record_history();
  set_history_metadata("epoch \"1\"");
  note(1);
  std::thread([] {
    EXPECT_EQ(history_metadata(), "");
    set_history_metadata("loader");
    note(2);
  }).join();
  EXPECT_EQ(history_metadata(), "epoch \"1\"");
  set_history_metadata("");
  note(3);
  const RecordedHistory history = recorded_history();
  std::vector<std::string> texts;
  for (const RecordedEvent& event : history.events)
    texts.push_back(history.metadata[event.metadata]);
  EXPECT_THAT(texts, ElementsAre("epoch \"1\"", "loader", ""));
}

TEST_F(HistoryTest, AnnotationsNameScopes) {
  GANTRY_REQUIRE_DEVICES(2);
  annotate_history({{"name", "too early"}});
  record_history({.max_entries = 3});
  {
    const HistoryAnnotation outer("forward", Device::cuda(1));
    annotate_history({{"name", "mark"}, {"step", "7"}}, Device::cuda(0));
  }
  const auto notes = recorded_history().annotations;
  ASSERT_THAT(notes, SizeIs(3));
  EXPECT_EQ(notes[0].device, 1);
  EXPECT_EQ(notes[0].values.at("name"), "forward");
  EXPECT_EQ(notes[0].values.at("stage"), "START");
  EXPECT_EQ(notes[1].device, 0);
  EXPECT_EQ(notes[1].values.at("step"), "7");
  EXPECT_EQ(notes[2].values.at("stage"), "END");
  EXPECT_LE(notes[0].time_us, notes[2].time_us);
  annotate_history({{"name", "one more"}}, Device::cuda(0));
  const auto after = recorded_history().annotations;
  ASSERT_THAT(after, SizeIs(3));
  EXPECT_EQ(after[0].values.at("name"), "mark");
  EXPECT_EQ(after[2].values.at("name"), "one more");
}

TEST_F(HistoryTest, AnnotationsGoWithTheEvents) {
  GANTRY_REQUIRE_DEVICES(1);
  const auto annotate = [] { annotate_history({{"name", "mark"}}, Device::cuda(0)); };
  record_history();
  annotate();
  record_history();
  EXPECT_THAT(recorded_history().annotations, SizeIs(1)) << "the recording goes on";
  record_history({.clear = true});
  EXPECT_THAT(recorded_history().annotations, IsEmpty());
  annotate();
  record_history({.enabled = false});
  EXPECT_THAT(recorded_history().annotations, IsEmpty());
}

TEST_F(HistoryTest, ASnapshotHasTheAnnotationsFromBeforeItsSegments) {
  GANTRY_REQUIRE_DEVICES(1);
  const auto annotate = [](const char* name) {
    annotate_history({{"name", name}}, Device::cuda(0));
  };
  const SegmentSource before = set_segment_source([&] {
    HeldSegments held;
    held.time_ns = history_moment_ns();
    // Annotations tell microseconds.
    while (history_moment_ns() < held.time_ns + 2000) {
    }
    annotate("late");
    return std::vector{held};
  });
  record_history();
  annotate("early");
  const Snapshot taken = snapshot();
  set_segment_source(before);
  ASSERT_THAT(taken.annotations, SizeIs(1));
  EXPECT_EQ(taken.annotations[0].values.at("name"), "early");
}

TEST_F(HistoryTest, ThreadsRecordWhileOthersLookAndSwitch) {
  record_history({.max_entries = 5000});
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&running, t] {
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        record_trace(0, TraceAction::alloc, i, 512, t, i % 64 == 0 ? history_test_user_call() : 0);
      }
      --running;
    });
  }
  int looks = 0;
  while (running > 0 || looks == 0) {
    const auto events = recorded_history().events;
    EXPECT_LE(events.size(), 5000U);
    std::map<std::uint64_t, std::uintptr_t> last;
    for (const RecordedEvent& event : events) {
      const auto [known, is_new] = last.try_emplace(event.stream, event.address);
      if (!is_new) {
        ASSERT_EQ(event.address, known->second + 1);
        known->second = event.address;
      }
      if (event.call_site != 0) {
        ASSERT_FALSE(stacks::frames_of(event.call_site).empty());
      }
    }
    if (++looks % 8 == 0) record_history({.max_entries = 5000, .clear = true});
  }
  for (std::thread& thread : threads) thread.join();
}

// What the allocator of a device reports and what it recorded fit together.
TEST_F(HistoryTest, TheAllocatorsHistoryBalances) {
  GANTRY_REQUIRE_DEVICES(1);
  record_history();
  std::vector<Buffer> kept;
  std::vector<std::size_t> requests;
  for (std::size_t i = 0; i < 200; ++i) {
    requests.push_back(1 + (i * 7919) % 3'000'000);
    Buffer buffer = allocate(Stream::current(Device::cuda(0)), requests.back());
    if (i % 3 == 0) kept.push_back(std::move(buffer));
  }
  const Snapshot now = snapshot();
  ASSERT_FALSE(now.segments.empty());
  std::map<std::uintptr_t, std::size_t> live;
  std::map<std::uintptr_t, std::size_t> requested;
  std::vector<std::size_t> seen_requests;
  for (const TraceEntry& entry : now.device_traces.at(0)) {
    if (entry.action == TraceAction::alloc) {
      EXPECT_TRUE(live.emplace(entry.address, entry.bytes).second) << entry.address;
      requested[entry.address] = entry.requested;
      seen_requests.push_back(entry.requested);
    } else if (entry.action == TraceAction::free_requested) {
      EXPECT_EQ(live.at(entry.address), entry.bytes);
      EXPECT_EQ(entry.requested, requested.at(entry.address));
    } else if (entry.action == TraceAction::free_completed) {
      EXPECT_EQ(live.erase(entry.address), 1U);
      EXPECT_EQ(entry.requested, requested.at(entry.address));
    }
  }
  EXPECT_EQ(seen_requests, requests);
  std::map<std::uintptr_t, std::size_t> held;
  for (const SegmentInfo& segment : now.segments) {
    std::size_t total = 0;
    std::size_t allocated = 0;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, segment.address + total);
      total += block.bytes;
      if (block.state != BlockState::active_allocated) continue;
      allocated += block.bytes;
      EXPECT_LE(block.requested, block.bytes);
      EXPECT_FALSE(block.frames.empty());
      held.emplace(block.address, block.bytes);
    }
    EXPECT_EQ(segment.total_bytes, total);
    EXPECT_EQ(segment.allocated_bytes, allocated);
  }
  for (const Buffer& buffer : kept) {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    EXPECT_TRUE(held.contains(address));
    EXPECT_TRUE(live.contains(address));
  }
  EXPECT_EQ(live, held);
}

}  // namespace
}  // namespace gantry::memory
