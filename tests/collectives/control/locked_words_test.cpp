// Page-locked words of groups that have ended, whose ranks were in one process.
#include "collectives/control/locked_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/call.hpp"
#include "job/flight_folder.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/control/control_group.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::AnyOf;
using testing::ControlGroup;
using ::testing::EndsWith;
using testing::FaultDriver;
using testing::FlightFolder;
using testing::rank_threads;

// Mappings of flight files, with a name or without.
int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    const bool is_one = line.find(flight::folder()) != std::string::npos ||
                        line.find("gantry-control") != std::string::npos;
    if (is_one) ++count;
  }
  return count;
}

class LockedWordsTest : public testing::LocalGroupTest {
 protected:
  void SetUp() override {
    LocalGroupTest::SetUp();
    GANTRY_REQUIRE_DEVICES(2);
    memory::empty_cache();
  }
};

TEST_F(LockedWordsTest, FiftyGroupsOneAfterTheOtherKeepWhatOneKeeps) {
  FaultDriver faults;
  int after_the_first = 0;
  std::uint64_t locked = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<Communicator> group = Communicator::local(devices(2));
    rank_threads(2, [&](int rank) {
      const DeviceGuard guard(Device::cuda(rank));
      const Tensor tensor = full({1000}, rank + i, {.dtype = f32, .device = Device::cuda(rank)});
      group[static_cast<std::size_t>(rank)].all_reduce(tensor).synchronize();
      EXPECT_EQ(tensor[0].item<float>(), static_cast<float>(2 * i + 1));
    });
    group.clear();
    if (i == 0) {
      after_the_first = mappings();
      locked = faults.calls("register_host");
    }
    ASSERT_EQ(mappings(), after_the_first) << "after " << i + 1 << " groups";
  }
  EXPECT_GE(after_the_first, 2);  // CUDA may divide a mapping
  EXPECT_EQ(faults.calls("register_host"), locked);
  EXPECT_EQ(faults.calls("unregister_host"), 0u);
  memory::empty_cache();
  EXPECT_EQ(mappings(), 0);
  EXPECT_GE(faults.calls("unregister_host"), 2u);
}

// Files in a folder of their own, which may be on a disk: devices cannot page-lock such files.
class LockedFileTest : public LockedWordsTest {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_SIM();
    LockedWordsTest::SetUp();
  }
};

std::string path_of(const ControlSegment& segment) { return segment.view().header().path; }

// All bytes of a group's file, without the parts in which two files of one group differ. Read as
// other processes do, since the watchdog writes to it.
std::string content(const ControlSegment& segment) {
  std::string bytes = testing::content_of(path_of(segment));
  const flight::View copy(bytes.data());
  copy.header().created_ns = 0;
  std::memset(copy.header().path, 0, sizeof copy.header().path);
  for (int rank = 0; rank < copy.header().ranks; ++rank) copy.rank(rank).heartbeat_ns = 0;
  return bytes;
}

// Writes into every part of the file: words, entries, block counts, fences and mailboxes.
void use(ControlGroup& group) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 7);
  rank_threads(group.size(), [&](int rank) {
    group[rank].record({.what = {.call = 1, .kind = CollectiveKind::all_to_all},
                        .send_counts = counts,
                        .recv_counts = counts},
                       Algorithm::two_shot, 28, 1);
    group[rank].await(group[rank].announce());
    group[rank].describe_device("a device", "uuid");
    const flight::View& view = group[rank].view();
    view.mailbox(rank).piece = 3;
    view.mailbox(rank).total_bytes = 99;
    std::memset(view.mailbox(rank).data, 1, sizeof view.mailbox(rank).data);
  });
  for (int rank = 0; rank < group.size(); ++rank) {
    group.start(rank, 1);
    group.end(rank, 1);
  }
}

TEST_F(LockedFileTest, AFileThatIsTakenOverIsAsANewOne) {
  const FlightFolder folder;
  std::optional<ControlGroup> group(std::in_place, 2);
  const std::string fresh = content((*group)[0]);
  const void* const mapped = &(*group)[0].view().header();
  use(*group);
  EXPECT_NE(content((*group)[0]), fresh);
  group.reset();
  group.emplace(2);
  EXPECT_EQ(&(*group)[0].view().header(), mapped);
  EXPECT_TRUE(content((*group)[0]) == fresh);
  EXPECT_TRUE(content((*group)[1]) == fresh);
  use(*group);
}

TEST_F(LockedFileTest, ReadersFindTheFileWhileAGroupUsesIt) {
  const FlightFolder folder;
  std::string before;
  for (int i = 0; i < 3; ++i) {
    ControlGroup group(2);
    ASSERT_EQ(flight::list_files(), std::vector{path_of(group[0])});
    EXPECT_NE(path_of(group[0]), before);
    before = path_of(group[0]);
    const auto file = flight::OpenFile::open(before);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->view().rank(1).pid, getpid());
    group[0].finish(std::chrono::milliseconds(0));
    EXPECT_EQ(flight::list_files().size(), 1u);
    group[1].finish(std::chrono::milliseconds(0));
    EXPECT_TRUE(flight::list_files().empty());
  }
}

TEST_F(LockedFileTest, GroupsAtATimeHaveFilesOfTheirOwn) {
  const FlightFolder folder;
  { ControlGroup group(2); }
  FaultDriver faults;
  ControlGroup first(2);
  ControlGroup second(2);
  EXPECT_NE(path_of(first[0]), path_of(second[0]));
  EXPECT_EQ(faults.calls("register_host"), 2u);
  rank_threads(2, [&](int rank) { first[rank].await(first[rank].announce()); });
  EXPECT_EQ(second.bootstrap(0).lost_rank(), -1);
  EXPECT_EQ(second[1].view().rank(1).fence, 0u);
}

TEST_F(LockedFileTest, AGroupOfAnotherSizeTakesNothingOver) {
  const FlightFolder folder;
  { ControlGroup group(2); }
  FaultDriver faults;
  ControlGroup group(3);
  EXPECT_EQ(faults.calls("register_host"), 3u);
  rank_threads(3, [&](int rank) { group[rank].await(group[rank].announce()); });
}

// Two of three mappings do not make a file of two ranks.
TEST_F(LockedFileTest, AGroupTakesNoPartOfALargerOneOver) {
  const FlightFolder folder;
  std::optional<ControlGroup> larger(std::in_place, 3);
  const std::shared_ptr<ControlFile> used = (*larger)[2].file();
  larger.reset();
  FaultDriver faults;
  ControlGroup group(2);
  EXPECT_EQ(faults.calls("register_host"), 2u);
  rank_threads(2, [&](int rank) { group[rank].await(group[rank].announce()); });
}

TEST_F(LockedFileTest, WordsStayLockedWhileAGroupHasSeveralRanksHere) {
  const FlightFolder folder;
  FaultDriver faults;
  {
    ControlGroup living(3);
    { ControlGroup group(2); }
    memory::empty_cache();
    EXPECT_EQ(faults.calls("unregister_host"), 0u);
  }
  memory::empty_cache();
  EXPECT_EQ(faults.calls("unregister_host"), 5u);
}

TEST_F(LockedFileTest, EachFolderHasItsOwn) {
  const FlightFolder folder;
  FaultDriver faults;
  for (const char* name : {"/a", "/b", "/a", "/b", "/a"}) {
    std::filesystem::create_directory(folder.path() + name);
    setenv("GANTRY_FLIGHT_DIR", (folder.path() + name).c_str(), 1);
    ControlGroup group(2);
    EXPECT_EQ(flight::list_files(), std::vector{path_of(group[0])});
  }
  EXPECT_EQ(faults.calls("register_host"), 4u);
}

TEST_F(LockedFileTest, TheFileOfABrokenGroupStaysAsItIs) {
  const FlightFolder folder;
  std::string path;
  {
    ControlGroup group(2);
    path = path_of(group[0]);
    group[0].abort();
  }
  ControlGroup group(2);
  EXPECT_NE(path_of(group[0]), path);
  const auto file = flight::OpenFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_NE(file->view().header().diagnosis, 0u);
}

TEST_F(LockedFileTest, AFileInUseIsNotTakenOver) {
  const FlightFolder folder;
  std::optional<ControlGroup> group(std::in_place, 2);
  std::shared_ptr<ControlFile> used = (*group)[1].file();
  group.reset();
  FaultDriver faults;
  group.emplace(2);
  EXPECT_EQ(faults.calls("register_host"), 2u);
  EXPECT_NE(&used->view().header(), &(*group)[1].view().header());
  group.reset();
  used.reset();
  group.emplace(2);
  EXPECT_EQ(faults.calls("register_host"), 2u);
}

TEST_F(LockedFileTest, WithoutTheFileInItsFolderThereIsANewOne) {
  {
    const FlightFolder folder;
    { ControlGroup group(2); }
    std::filesystem::remove_all(flight::folder());
    ControlGroup group(2);
    EXPECT_EQ(flight::list_files(), std::vector{path_of(group[0])});
    rank_threads(2, [&](int rank) { group[rank].await(group[rank].announce()); });
  }
  const FlightFolder another;
  ControlGroup group(2);
  EXPECT_EQ(flight::list_files(), std::vector{path_of(group[0])});
}

TEST_F(LockedFileTest, EmptyCacheRemovesTheNames) {
  const FlightFolder folder;
  { ControlGroup group(2); }
  EXPECT_FALSE(std::filesystem::is_empty(flight::folder()));
  memory::empty_cache();
  EXPECT_TRUE(std::filesystem::is_empty(flight::folder()));
}

// A rank that fails while the others take mappings over.
TEST_F(LockedFileTest, AGroupThatFailsLeavesTheNextOneIntact) {
  const FlightFolder folder;
  { ControlGroup group(2); }
  auto bootstraps = make_local_bootstraps(2);
  bootstraps[1].reset();
  EXPECT_THROW(ControlSegment(*bootstraps[0], 0, 2, std::chrono::milliseconds(10'000)), Error);
  EXPECT_TRUE(flight::list_files().empty());
  ControlGroup group(2);
  EXPECT_EQ(flight::list_files(), std::vector{path_of(group[0])});
  rank_threads(2, [&](int rank) { group[rank].await(group[rank].announce()); });
}

class LockedFileExitTest : public LockedFileTest {
 protected:
  static testing::Outcome run(const char* end) {
    // A child of a fork has none of the threads whose memory it holds: no leaks.
    return testing::run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/locked_words_program", end},
                                 .environment = {{"ASAN_OPTIONS", "detect_leaks=0"}}});
  }
  static std::size_t files() {
    const std::filesystem::directory_iterator all(flight::folder());
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  // The program ends with code 0, prints `text`, and leaves no file.
  static void expect_clean_exit(const char* end, std::string_view text) {
    const FlightFolder folder;
    const auto outcome = run(end);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(outcome.out, text);
    EXPECT_EQ(files(), 0u);
  }
};

TEST_F(LockedFileExitTest, TheNameGoesWhenTheProcessExits) {
  expect_clean_exit("exit", ".retired \n");
}

TEST_F(LockedFileExitTest, TheNameStaysWhenAChildOfAForkExits) {
  expect_clean_exit("fork", ".retired \nchild 0 .retired \n");
}

TEST_F(LockedFileExitTest, TheNameIsStaleWhenTheProcessIsKilled) {
  const FlightFolder folder;
  EXPECT_EQ(run("kill").signal, SIGKILL);
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(flight::list_files().empty());
  { ControlGroup group(2); }  // removes stale files; its own is in use
  memory::empty_cache();
  EXPECT_EQ(files(), 0u);
}

// Rank 0 takes its file over. Rank 1 has one of the same number, which is another file. A file that
// several processes had is not kept: the file of rank 1's own group is, and the world's file is in
// use.
TEST_F(LockedFileExitTest, AGroupOfSeveralProcessesTakesOverTheFileOfRankZero) {
  const FlightFolder folder;
  testing::RankProcesses ranks({.ranks = 2,
                                .argv = {GANTRY_TEST_PROGRAM_DIR "/locked_words_program", "world"},
                                .environment = {{"GANTRY_P2P", "on"}}});
  const testing::Outcome second = ranks[1].wait();
  EXPECT_EQ(second.exit_code, 0) << second.describe();
  EXPECT_THAT(second.out, EndsWith("sum 3\nsum 3\n"));
  const testing::Outcome first = ranks[0].wait();
  EXPECT_EQ(first.exit_code, 0) << first.describe();
  EXPECT_THAT(first.out, AnyOf(EndsWith("sum 3\nsum 3\n.flight .retired \n"),
                               EndsWith("sum 3\nsum 3\n.retired .flight \n")));
}

}  // namespace
}  // namespace gantry
