#include "collectives/control/segment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include <gantry/extend/driver.hpp>

#include "collectives/call.hpp"
#include "job/flight_folder.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "tests/collectives/control/control_group.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::ControlGroup;
using testing::FlightFolder;
using ::testing::HasSubstr;
using testing::rank_threads;
using ::testing::StartsWith;
using testing::text_of;

Descriptor sum_of(std::int64_t call, std::int64_t count) {
  return {.call = call, .count = count, .kind = CollectiveKind::all_reduce, .dtype = f32};
}

void record(ControlSegment& block, const Descriptor& what) {
  block.record({.what = what}, Algorithm::one_shot, what.count * 4, 7);
}

TEST(DescriptorTest, TextDescribesTheCall) {
  EXPECT_EQ(sum_of(1, 4096).str(), "all_reduce sum f32[4096]");
  Descriptor call{.count = 16, .root = 1, .kind = CollectiveKind::broadcast, .dtype = f16};
  EXPECT_EQ(call.str(), "broadcast f16[16] root=1");
  call.kind = CollectiveKind::reduce;
  call.op = ReduceOp::max;
  call.scale = 0.5;
  call.reproducible = 0;
  EXPECT_EQ(call.str(), "reduce max f16[16] root=1 scale=0.5 reproducible=false");
  call = {.count = 4, .root = 3, .kind = CollectiveKind::send, .dtype = f32};
  EXPECT_EQ(call.str(), "send f32[4] to 3");
  call.kind = CollectiveKind::recv;
  EXPECT_EQ(call.str(), "recv f32[4] from 3");
  call = {.count = -1, .kind = CollectiveKind::all_to_all, .dtype = f32};
  EXPECT_EQ(call.str(), "all_to_all f32[uneven]");
  EXPECT_EQ(Descriptor{}.str(), "barrier");
  EXPECT_EQ(name(Algorithm::automatic), "auto");
}

TEST(DescriptorTest, HashDependsOnEveryFieldButTheNumber) {
  const Descriptor base = sum_of(1, 8);
  std::set<std::uint32_t> hashes{base.hash()};
  const auto add = [&](auto change) {
    Descriptor other = base;
    change(other);
    EXPECT_TRUE(hashes.insert(other.hash()).second) << other.str();
  };
  add([](Descriptor& d) { d.count = 9; });
  add([](Descriptor& d) { d.scale = 0.5; });
  add([](Descriptor& d) { d.root = 0; });
  add([](Descriptor& d) { d.kind = CollectiveKind::reduce_scatter; });
  add([](Descriptor& d) { d.op = ReduceOp::max; });
  add([](Descriptor& d) { d.dtype = f16; });
  add([](Descriptor& d) { d.reproducible = 0; });
  EXPECT_EQ(sum_of(2, 8).hash(), base.hash());

  // Hash values of 0 … 99,999 collide about once in 2^32.
  hashes.clear();
  for (int count = 0; count < 100'000; ++count) hashes.insert(sum_of(1, count).hash());
  EXPECT_GT(hashes.size(), 99'980U);
  EXPECT_FALSE(hashes.contains(0));
}

TEST(ControlSegmentTest, AwaitReturnsWhenEveryRankAnnounced) {
  const FlightFolder folder;
  ControlGroup group(3);
  std::atomic<int> entered{0};
  rank_threads(3, [&](int rank) {
    for (int round = 1; round <= 50; ++round) {
      ++entered;
      const std::uint64_t fence = group[rank].announce();
      EXPECT_EQ(fence, static_cast<std::uint64_t>(round));
      group[rank].await(fence);
      EXPECT_GE(entered.load(), 3 * round);
    }
  });
}

TEST(ControlSegmentTest, ARankThatDoesNotAnnounceIsATimeoutForAll) {
  const FlightFolder folder;
  ControlGroup group(3, milliseconds(50));
  const std::uint64_t fence = group[0].announce();
  (void)group[2].announce();
  const std::string text = text_of<TimeoutError>([&] { group[0].await(fence); });
  EXPECT_EQ(text,
            "collective: rank 0 waited 50 ms, but rank(s) 1 did not enter the operation "
            "(GANTRY_COLL_TIMEOUT sets the deadline)");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(text_of<TimeoutError>([&] { group[rank].require_intact(); }), text);
    EXPECT_EQ(group[rank].failed_rank(), 1);
    EXPECT_EQ(group[rank].device_words()->abort, 1U);
  }
}

TEST(ControlSegmentTest, AnAbortBreaksTheGroupForAllAndIsNotUndone) {
  const FlightFolder folder;
  ControlGroup group(4);
  EXPECT_FALSE(group[0].broken());
  EXPECT_EQ(group[0].failed_rank(), -1);
  group[0].require_intact();
  group[2].abort();
  group[1].abort();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(group[rank].broken());
    EXPECT_EQ(group[rank].failed_rank(), 2) << "all ranks get the first failed rank";
    EXPECT_EQ(text_of<PeerLostError>([&] { group[rank].require_intact(); }),
              "rank 2 aborted; the communicator of 4 ranks is unusable");
    EXPECT_EQ(group[rank].words(rank)->abort, 1U);
  }
}

TEST(ControlSegmentTest, ALossNamesTheCallInProgress) {
  const FlightFolder folder;
  ControlGroup group(2);
  record(group[0], sum_of(41, 4096));
  group.start(0, 41);
  group[1].abort();
  EXPECT_EQ(text_of<PeerLostError>([&] { group[0].require_intact(); }),
            "rank 1 aborted; the communicator of 2 ranks is unusable (during collective #41 "
            "all_reduce sum f32[4096])");
}

// Ranks that detect failures at one time write at one time.
TEST(ControlSegmentTest, TheTextOfADiagnosisIsItsAuthorsAndWhole) {
  const FlightFolder folder;
  ControlGroup group(3);
  // Rank 0 has died while it wrote.
  std::memset(group[0].view().rank(0).detail, 'x', sizeof(flight::Rank::detail));
  const std::string text = std::string(300, 'a') + " rank 1's text";
  group[1].mark_late(2, text, "all_reduce", flight::kLateToCall);
  group[0].mark_late(1, "another text", "barrier", flight::kLateToCall);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(text_of<TimeoutError>([&] { group[rank].require_intact(); }), text);
    EXPECT_EQ(group[rank].failed_rank(), 2);
  }
}

TEST(ControlSegmentTest, DiagnosesOfOneTimeAreNotMixed) {
  const FlightFolder folder;
  constexpr int kRanks = 3;
  const auto text_by = [](int author, int thread) {
    return std::string(static_cast<std::size_t>(100 + 40 * author + 20 * thread),
                       static_cast<char>('a' + 2 * author + thread));
  };
  for (int round = 0; round < 30; ++round) {
    ControlGroup group(kRanks);
    // Two threads of each rank.
    rank_threads(2 * kRanks, [&](int thread) {
      const int author = thread % kRanks;
      group[author].mark_late((author + 1) % kRanks, text_by(author, thread / kRanks), "barrier",
                              flight::kLateToCall);
      const std::string text = text_of<TimeoutError>([&] { group[author].require_intact(); });
      const int late = group[author].failed_rank();
      const int writer = (late + kRanks - 1) % kRanks;
      EXPECT_TRUE(text == text_by(writer, 0) || text == text_by(writer, 1)) << text;
    });
  }
}

TEST(ControlSegmentTest, ARankThatLeftFailsOnlyCallsThatItDidNotEnter) {
  const FlightFolder folder;
  ControlGroup group(2);
  const std::uint64_t fence = group[0].announce();
  (void)group[1].announce();
  group[1].finish(milliseconds(0));
  group[0].await(fence);
  group[0].check_peers(fence);
  const std::uint64_t next = group[0].announce();
  EXPECT_THAT(text_of<PeerLostError>([&] { group[0].await(next); }),
              StartsWith("rank 1 has left the job; the communicator of 2 ranks is unusable"));
}

// Throws what take_fault() returns.
void raise_fault(ControlSegment& block) {
  if (const auto fault = block.take_fault()) std::rethrow_exception(fault->error);
}

TEST(ControlSegmentTest, AMismatchNamesTheFirstRankThatDiffersFromRank0) {
  const FlightFolder folder;
  ControlGroup group(4);
  for (int rank = 0; rank < 4; ++rank) {
    record(group[rank], sum_of(17, rank < 2 ? 8 : 9));
    group.start(rank, 17);
    group.report(rank, OperationFault::mismatch, 17, (rank + 2) % 4);
    EXPECT_TRUE(group[rank].has_fault());
    raise_fault(group[rank]);  // still running: other threads may report the same fault
    EXPECT_TRUE(group[rank].has_fault());
    group.end(rank, 17);
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(text_of<CollectiveMismatch>([&] { raise_fault(group[rank]); }),
              "collective #17: expected the same call on every rank, but rank 0 called all_reduce "
              "sum f32[8] and rank 2 called all_reduce sum f32[9]");
    EXPECT_FALSE(group[rank].has_fault());
    EXPECT_FALSE(group[rank].take_fault().has_value());
    group[rank].require_intact();
  }
}

TEST(ControlSegmentTest, AFaultThatSeveralBlocksReportIsThrownOnce) {
  const FlightFolder folder;
  ControlGroup group(2);
  for (int rank = 0; rank < 2; ++rank) record(group[rank], sum_of(5, rank));
  const auto report = [&](std::uint32_t sequence) {
    group.report(0, OperationFault::mismatch, 5, 1, sequence);
  };
  report(UINT32_MAX >> 2);
  EXPECT_THROW(raise_fault(group[0]), CollectiveMismatch);
  report(UINT32_MAX >> 2);
  raise_fault(group[0]);
  EXPECT_FALSE(group[0].has_fault());
  // The same call, replayed by a graph.
  report(1);
  EXPECT_THROW(raise_fault(group[0]), CollectiveMismatch);
}

// A GPU's kernel reports itself as the peer.
TEST(ControlSegmentTest, AWrongArgumentInAKernelIsAnErrorEachTime) {
  ControlGroup group(2);
  for (const std::uint32_t sequence : {1U, 2U, 3U}) {
    group.report(0, OperationFault::aborted, flight::kMessageBit, 0, sequence);
    EXPECT_EQ(text_of<InvalidArgument>([&] { raise_fault(group[0]); }),
              "PeerView: a kernel used a rank or a channel that does not exist");
    EXPECT_FALSE(group[0].has_fault());
    group[0].require_intact();
  }
}

TEST(ControlSegmentTest, AMismatchOfUnevenBlocksNamesTheTwoRanksThatDisagree) {
  ControlGroup group(3);
  using Counts = std::vector<std::int64_t>;
  const auto record_uneven = [&](int rank, std::int64_t call, const Counts& sends,
                                 const Counts& receives) {
    const Descriptor what{
        .call = call, .count = -1, .kind = CollectiveKind::all_to_all, .dtype = f32};
    group[rank].record({.what = what, .send_counts = sends, .recv_counts = receives},
                       Algorithm::one_shot, 0, 7);
  };
  record_uneven(0, 1, {1, 2, 3}, {1, 4, 7});
  record_uneven(1, 1, {4, 5, 6}, {2, 5, 9});
  record_uneven(2, 1, {7, 8, 9}, {3, 6, 9});
  for (int rank = 0; rank < 3; ++rank) {
    // Rank 0 agrees with both ranks, and gets the error from one that stopped.
    group.report(rank, OperationFault::mismatch, 1, (rank + 1) % 3);
    EXPECT_EQ(text_of<CollectiveMismatch>([&] { raise_fault(group[rank]); }),
              "collective #1: expected blocks of the sizes that the receiver expects, but rank 2 "
              "sends 8 elements to rank 1, which expects 9, in all_to_all f32[uneven]");
  }
  // Only ranks that have recorded the call are compared.
  record_uneven(0, 2, {1, 1, 1}, {1, 1, 1});
  EXPECT_NO_THROW(group[0].verify(2));
  record_uneven(1, 2, {0, 1, 1}, {1, 1, 1});
  EXPECT_THROW(group[2].verify(2), CollectiveMismatch);
  // Later calls overwrite the counts; then no rank is named.
  for (std::int64_t call = 3; call < 1000; ++call) {
    for (int rank = 0; rank < 3; ++rank) record_uneven(rank, call, {1, 1, 1}, {1, 1, 1});
  }
  group.report(0, OperationFault::mismatch, 1, 1, 5);
  const std::string text = text_of<CollectiveMismatch>([&] { raise_fault(group[0]); });
  EXPECT_THAT(text, HasSubstr("those of two ranks, which are no longer recorded, differ in "
                              "all_to_all f32[uneven]"));
}

TEST(ControlSegmentTest, AMismatchOfAMessageNamesBothSides) {
  const FlightFolder folder;
  ControlGroup group(3);
  Descriptor send{.call = 1, .count = 4, .root = 2, .kind = CollectiveKind::send, .dtype = f32};
  Descriptor recv{.call = 9, .count = 5, .root = 0, .kind = CollectiveKind::recv, .dtype = f32};
  record(group[0], send);
  record(group[2], recv);
  record(group[2], sum_of(1, 77));
  group.report(0, OperationFault::mismatch, 1, 2);
  group.report(2, OperationFault::mismatch, 9, 0);
  const std::string text =
      "expected a recv of what is sent, but rank 0 called send f32[4] to 2 and rank 2 called recv "
      "f32[5] from 0";
  EXPECT_EQ(text_of<InvalidArgument>([&] { raise_fault(group[0]); }), "message #1: " + text);
  // The group is broken, and all ranks throw the same error.
  EXPECT_EQ(text_of<InvalidArgument>([&] { raise_fault(group[2]); }), "message #1: " + text);
  EXPECT_EQ(text_of<InvalidArgument>([&] { group[1].require_intact(); }), "message #1: " + text);
  EXPECT_EQ(group[1].device_words()->abort, 1U);
}

TEST(CallTimerTest, RunsOfACallInAGraphDoNotAddUp) {
  CallTimer timer;
  for (std::uint32_t run = 1; run < 1000; ++run) {
    // Every scan of the watchdog finds a call in progress.
    const flight::Progress running{
        .started = 5, .finished = 4, .run = run, .finished_run = run - 1};
    EXPECT_EQ(timer.update(running, 10), 0) << run;
  }
  const flight::Progress last{.started = 5, .finished = 5, .run = 1000, .finished_run = 999};
  EXPECT_EQ(timer.update(last, 10), 0);
  EXPECT_EQ(timer.update(last, 20), 20);
  EXPECT_EQ(timer.update(last, 30), 50);
}

TEST(CallTimerTest, TheTimeBetweenCallsDoesNotCount) {
  CallTimer timer;
  const flight::Progress running{.started = 5, .finished = 4, .run = 0, .finished_run = 0};
  const flight::Progress ended{.started = 5, .finished = 5, .run = 0, .finished_run = 0};
  const flight::Progress next{.started = 6, .finished = 5, .run = 0, .finished_run = 0};
  EXPECT_EQ(timer.update(running, 10), 0) << "it began after the last scan";
  EXPECT_EQ(timer.update(running, 10), 10);
  EXPECT_EQ(timer.update(next, 10), 0);
  EXPECT_EQ(timer.update(next, 10), 10);
  EXPECT_EQ(timer.update(ended, 10), 0);
  EXPECT_EQ(timer.update(running, 10), 0);
}

TEST(ControlSegmentTest, AnAbortedCallThrowsTheErrorThatBrokeTheGroup) {
  const FlightFolder folder;
  ControlGroup group(2);
  group.start(0, 3);
  group[1].abort();
  group.report(0, OperationFault::aborted, 3, 1);
  EXPECT_THAT(text_of<PeerLostError>([&] { raise_fault(group[0]); }),
              StartsWith("rank 1 aborted; the communicator of 2 ranks is unusable"));
}

// NCCL needs the callback, since its kernels do not read the abort word.
TEST(ControlSegmentTest, EveryRankCallsItsLossCallback) {
  const FlightFolder folder;
  ControlGroup group(2);
  std::array<std::atomic<int>, 2> told{};
  for (int rank = 0; rank < 2; ++rank) {
    group[rank].on_loss([&, rank] { ++told[static_cast<std::size_t>(rank)]; });
  }
  EXPECT_EQ(told[0] + told[1], 0);
  group[1].abort();
  EXPECT_GE(told[1], 1) << "at once by who breaks the group";
  while (told[0] == 0) std::this_thread::yield();  // by the watchdog
  for (int rank = 0; rank < 2; ++rank) group[rank].on_loss(nullptr);
  const int before = told[0];
  group[0].abort();
  EXPECT_EQ(told[0], before);
}

TEST(ControlSegmentTest, WordsAreWhereTheDeviceMayReadThem) {
  const FlightFolder folder;
  ControlGroup group(2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(driver().pointer_info(group[rank].device_words()).kind, PointerKind::pinned);
  }
  // Both ranks map the same memory.
  group.start(1, 5);
  EXPECT_EQ(group[0].words(1)->started, 5U);
}

TEST(ControlSegmentTest, TheRingKeepsTheNewestCalls) {
  const FlightFolder folder;
  ControlGroup group(1);
  for (int call = 1; call <= 1500; ++call) record(group[0], sum_of(call, call));
  const flight::View& view = group[0].view();
  EXPECT_FALSE(view.find(0, flight::Queue::collective, 1500 - 1024));
  const auto kept = view.find(0, flight::Queue::collective, 1500 - 1023);
  ASSERT_TRUE(kept);
  EXPECT_EQ(view.text(kept->call), "all_reduce sum f32[477]");
  EXPECT_EQ(kept->bytes, 477 * 4);
  EXPECT_EQ(kept->stream, 7U);
  EXPECT_GT(kept->enqueued_ns, 0);
  ASSERT_TRUE(view.newest(0));
  EXPECT_EQ(view.newest(0)->call.number, 1500);
}

TEST(ControlSegmentTest, TheFileGoesWithTheLastRankAndStaysAfterALoss) {
  const FlightFolder folder;
  {
    ControlGroup group(2);
    const std::vector<std::string> files = flight::list_files();
    ASSERT_EQ(files.size(), 1U);
    struct stat facts {};
    ASSERT_EQ(stat(std::filesystem::path(files[0]).parent_path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0700U);
    const auto file = flight::OpenFile::open(files[0]);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->view().rank(1).pid, getpid());
    EXPECT_FALSE(file->is_over());
    EXPECT_EQ(file->view().rank(0).closed, 0U);
    group[0].finish(milliseconds(0));
    // Ranks of other processes wait for this.
    const auto later = flight::OpenFile::open(files[0]);
    ASSERT_TRUE(later);
    EXPECT_EQ(later->view().rank(0).closed, 1U);
    EXPECT_EQ(later->view().rank(1).closed, 0U);
    EXPECT_EQ(flight::list_files().size(), 1U);
    group[1].finish(milliseconds(0));
    EXPECT_TRUE(flight::list_files().empty());
  }
  {
    ControlGroup group(2);
    group[0].abort();
  }
  EXPECT_EQ(flight::list_files().size(), 1U);
}

TEST(ControlSegmentTest, WithoutAFolderTheGroupWorks) {
  const FlightFolder folder;
  ASSERT_EQ(mkdir(flight::folder().c_str(), 0755), 0);  // readable by other users: not trusted
  ControlGroup group(2);
  EXPECT_TRUE(flight::list_files().empty());
  rank_threads(2, [&](int rank) { group[rank].await(group[rank].announce()); });
}

TEST(ControlSegmentTest, AFolderOfALongNameIsLeftAsItWas) {
  const FlightFolder folder;
  const std::string longer = folder.path() + "/" + std::string(160, 'x');
  ASSERT_TRUE(std::filesystem::create_directory(longer));
  setenv("GANTRY_FLIGHT_DIR", longer.c_str(), 1);
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  { ControlGroup first(2); }  // opens the descriptors that a process keeps
  const auto before = descriptors();
  {
    ControlGroup group(2);
    EXPECT_EQ(flight::folder().rfind(longer, 0), 0U);
    EXPECT_TRUE(flight::list_files().empty());
    rank_threads(2, [&](int rank) { group[rank].await(group[rank].announce()); });
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_TRUE(flight::list_files().empty());
}

// A bootstrap whose rank fails after it has sent its file's path.
class Quitter final : public Bootstrap {
 public:
  explicit Quitter(std::unique_ptr<Bootstrap> wrapped) : wrapped_(std::move(wrapped)) {}
  std::vector<std::string> all_gather(const std::string& bytes) override {
    if (++calls_ == 1) return wrapped_->all_gather(bytes);
    wrapped_.reset();
    throw Error("quits");
  }
  int lost_rank() const noexcept override { return -1; }
  std::unique_ptr<Bootstrap> subset(const std::vector<int>&, std::string_view) override {
    return nullptr;
  }

 private:
  std::unique_ptr<Bootstrap> wrapped_;
  int calls_ = 0;
};

TEST(ControlSegmentTest, AGroupThatFailedLeavesTheNextOneIntact) {
  const FlightFolder folder;
  testing::FaultDriver faults;
  auto bootstraps = make_local_bootstraps(2);
  Quitter quitter(std::move(bootstraps[1]));
  rank_threads(2, [&](int rank) {
    Bootstrap& bootstrap = rank == 0 ? *bootstraps[0] : quitter;
    EXPECT_THROW(ControlSegment(bootstrap, rank, 2, milliseconds(10'000)), Error);
  });
  EXPECT_EQ(faults.calls("register_host"), 2U);
  // Unlocking may wait for devices.
  const std::uint64_t unlocked = faults.calls("unregister_host");
  (void)memory::MemoryPressureCallbacks::instance().run(0, memory::Waiting::forbidden);
  EXPECT_EQ(faults.calls("unregister_host"), unlocked);
  (void)memory::MemoryPressureCallbacks::instance().run(0, memory::Waiting::allowed);
  EXPECT_GE(faults.calls("unregister_host"), 2U);
  ControlGroup next(2);
  EXPECT_EQ(flight::list_files().size(), 1U);
}

TEST(ControlSegmentTest, AFailureOfOneRankFailsAllRanks) {
  // If one rank fails, the others throw instead of waiting.
  const FlightFolder folder;
  auto bootstraps = make_local_bootstraps(2);
  bootstraps[1].reset();
  EXPECT_THAT(
      text_of<PeerLostError>([&] { ControlSegment(*bootstraps[0], 0, 2, milliseconds(1000)); }),
      HasSubstr("rank 1 gave up"));
}

}  // namespace
}  // namespace gantry
