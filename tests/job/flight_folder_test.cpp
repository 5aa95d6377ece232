// Flight files in a folder that others may have made, while others write to them.
#include "job/flight_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/processes/process_stamp.hpp"
#include "tests/support/flight_folder.hpp"

namespace gantry::flight {
namespace {

using gantry::testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uid_t kSomebodyElse = 65534;

// Tests of other users' files make them, which only root may.
#define REQUIRE_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of other users"

// A file with a header of `ranks` ranks, mapped by its writer.
class Written {
 public:
  explicit Written(const std::string& name, int ranks = 2) {
    Header header{};
    View::lay_out(header, ranks, static_cast<std::size_t>(getpagesize()));
    header.version = kVersion;
    header.magic.store(kMagic);
    bytes = header.bytes;
    file = create_file(name, bytes);
    EXPECT_GE(file.descriptor, 0) << file.failure;
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0);
    EXPECT_NE(base, MAP_FAILED);
    std::memcpy(base, static_cast<const void*>(&header), sizeof header);
  }
  ~Written() {
    munmap(base, bytes);
    close(file.descriptor);
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  View view() const { return View(base); }

  NewFile file;
  void* base = nullptr;
  std::size_t bytes = 0;
};

void make_old(const std::string& path) {
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), long_ago, 0), 0);
}

std::size_t remove_all() { return remove_stale_files(0, std::chrono::seconds(0)); }

TEST(FlightFolderTest, AFolderOfAnotherUserIsNeitherReadNorChanged) {
  REQUIRE_ROOT();
  const FlightFolder scope;
  { const Written file("mine"); }
  const std::string path = list_files().at(0);
  make_old(path);
  ASSERT_EQ(chown(folder().c_str(), kSomebodyElse, kSomebodyElse), 0);
  EXPECT_THAT(list_files(), IsEmpty());
  EXPECT_THAT(read_files().files, IsEmpty());
  EXPECT_EQ(read_files().failure, folder() + " was made by another user (65534)");
  EXPECT_EQ(remove_all(), 0U);
  EXPECT_TRUE(std::filesystem::exists(path));
}

// Whatever the other user has made, this user's files have a folder that everybody finds.
TEST(FlightFolderTest, AFolderOfAnotherUserIsReplaced) {
  REQUIRE_ROOT();
  const FlightFolder scope;
  const std::string usual = folder();
  const auto make_usual = [&](int kind) {
    std::filesystem::remove(usual);
    if (kind == 0) std::filesystem::create_directory(usual);
    if (kind == 1) std::filesystem::create_directory_symlink("/nowhere", usual);
    if (kind == 2) std::ofstream{usual};
    ASSERT_EQ(lchown(usual.c_str(), kSomebodyElse, kSomebodyElse), 0);
  };
  // Neither folders of others nor those that others may enter take its place.
  for (const char* decoy : {".a", ".b"}) std::filesystem::create_directory(usual + decoy);
  ASSERT_EQ(chown((usual + ".a").c_str(), kSomebodyElse, kSomebodyElse), 0);
  ASSERT_EQ(chmod((usual + ".b").c_str(), 0755), 0);
  make_usual(0);
  ::testing::internal::CaptureStderr();
  const Written file("mine");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the folder of flight recorders " + usual +
                              " was made by another user (65534); they are in " + folder()));
  EXPECT_THAT(folder(), ::testing::StartsWith(usual + "."));
  struct stat facts {};
  ASSERT_EQ(stat(folder().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700U);
  const std::string replaced = folder();
  for (const int kind : {1, 2, 0}) {
    make_usual(kind);
    EXPECT_EQ(folder(), replaced);
    EXPECT_THAT(list_files(), SizeIs(1));
    EXPECT_EQ(read_files().failure, "");
  }
  ::testing::internal::CaptureStderr();
  { const Written second("second"); }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "one warning is enough";
  EXPECT_THAT(list_files(), SizeIs(2));
  EXPECT_TRUE(std::filesystem::is_empty(usual));
}

// Threads share nothing here but the file system, so they stand for processes too.
TEST(FlightFolderTest, ThreadsAgreeOnAReplacement) {
  REQUIRE_ROOT();
  constexpr int kThreads = 8;
  // A round is over within microseconds, and few rounds have two threads in the same one.
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    const FlightFolder scope;
    const std::string usual = folder();
    std::filesystem::create_directory(usual);
    ASSERT_EQ(chown(usual.c_str(), kSomebodyElse, kSomebodyElse), 0);
    std::barrier begin(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&begin, i] {
        begin.arrive_and_wait();
        const NewFile file = create_file("file" + std::to_string(i), 4096);
        EXPECT_GE(file.descriptor, 0) << file.failure;
        close(file.descriptor);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_THAT(list_files(), SizeIs(kThreads)) << "in round " << round;
  }
}

// Others may take every name that is known beforehand: numbers in the way are passed.
TEST(FlightFolderTest, AReplacementHasTheFirstNumberThatIsFree) {
  REQUIRE_ROOT();
  const FlightFolder scope;
  const std::string usual = folder();
  for (const char* taken : {"", ".1", ".2", ".4"}) {
    std::filesystem::create_directory(usual + taken);
    ASSERT_EQ(chown((usual + taken).c_str(), kSomebodyElse, kSomebodyElse), 0);
  }
  std::filesystem::create_directory_symlink("/nowhere", usual + ".3");
  { const Written file("mine"); }
  EXPECT_EQ(folder(), usual + ".5");
  // A number that becomes free does not part the files.
  std::filesystem::remove(usual + ".1");
  { const Written file("second"); }
  EXPECT_EQ(folder(), usual + ".5");
  EXPECT_THAT(list_files(), SizeIs(2));
}

TEST(FlightFolderTest, ALinkInPlaceOfTheFolderIsNotFollowed) {
  const FlightFolder scope;
  const std::string victim = scope.path() + "/victim";
  ASSERT_TRUE(std::filesystem::create_directory(victim));
  ASSERT_EQ(chmod(victim.c_str(), 0700), 0);
  std::ofstream(victim + "/a.flight") << "something else";
  make_old(victim + "/a.flight");
  std::filesystem::create_directory_symlink(victim, folder());
  EXPECT_THAT(list_files(), IsEmpty());
  EXPECT_EQ(remove_all(), 0U);
  EXPECT_TRUE(std::filesystem::exists(victim + "/a.flight"));
  EXPECT_THAT(read_files().failure, HasSubstr(folder()));
  EXPECT_EQ(create_file("new", 4096).descriptor, -1);
}

TEST(FlightFolderTest, AFolderThatOthersMayEnterIsNotTrusted) {
  const FlightFolder scope;
  { const Written file("mine"); }
  ASSERT_EQ(chmod(folder().c_str(), 0755), 0);
  EXPECT_THAT(list_files(), IsEmpty());
  EXPECT_EQ(read_files().failure, folder() + " is open to other users");
  EXPECT_EQ(remove_all(), 0U);
}

TEST(FlightFolderTest, WithoutAFolderThereAreNoFilesAndNoFailure) {
  const FlightFolder scope;
  EXPECT_THAT(list_files(), IsEmpty());
  EXPECT_EQ(read_files().failure, "");
}

TEST(FlightFolderTest, WhatIsNoFileOfThisUserIsLeftAlone) {
  const FlightFolder scope;
  const Written file("mine");
  ASSERT_EQ(mkfifo((folder() + "/pipe.flight").c_str(), 0600), 0);
  std::filesystem::create_symlink(file.file.path, folder() + "/link.flight");
  std::filesystem::create_directory(folder() + "/folder.flight");
  EXPECT_THAT(list_files(), SizeIs(1));
  EXPECT_THAT(read_files().files, SizeIs(1));
  EXPECT_FALSE(OpenFile::open(folder() + "/pipe.flight"));
  EXPECT_FALSE(OpenFile::open(folder() + "/link.flight"));
  EXPECT_FALSE(remove_file(folder() + "/link.flight"));
  EXPECT_EQ(open_own_file(folder() + "/pipe.flight"), -1);
  EXPECT_EQ(open_own_file(folder() + "/link.flight"), -1);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file.file.path.c_str(), kSomebodyElse, kSomebodyElse), 0);
    EXPECT_THAT(list_files(), IsEmpty());
    EXPECT_THAT(read_files().files, IsEmpty());
    EXPECT_FALSE(remove_file(file.file.path));
    EXPECT_EQ(open_own_file(file.file.path), -1);
  }
}

TEST(FlightFolderTest, ARenamedFileIsTheNewest) {
  const FlightFolder scope;
  { const Written file("first"); }
  const std::string first = list_files().at(0);
  make_old(first);
  { const Written file("second"); }
  const std::string third = folder() + "/third.flight";
  EXPECT_TRUE(rename_file(first, third));
  EXPECT_THAT(list_files(), ::testing::ElementsAre(third, folder() + "/second.flight"));
  EXPECT_FALSE(rename_file(first, third));
  EXPECT_FALSE(rename_file(third, scope.path() + "/elsewhere.flight"));
  std::filesystem::create_symlink(third, folder() + "/link.flight");
  EXPECT_FALSE(rename_file(folder() + "/link.flight", folder() + "/fourth.flight"));
  EXPECT_TRUE(std::filesystem::exists(third));
}

TEST(FlightFolderTest, ARetiredFileIsNotListedAndGoesWithItsRanks) {
  const FlightFolder scope;
  const std::string living = folder() + "/living" + kRetiredSuffix;
  const std::string dead = folder() + "/dead" + kRetiredSuffix;
  {
    const Written file("living");
    file.view().rank(0).pid = this_process().pid;
    file.view().rank(0).start_time = this_process().start_time;
    ASSERT_TRUE(rename_file(file.file.path, living));
  }
  {
    const Written file("dead");
    file.view().rank(0).pid = this_process().pid;
    file.view().rank(0).start_time = this_process().start_time + 1;
    ASSERT_TRUE(rename_file(file.file.path, dead));
  }
  const auto path = [](const char* name) { return folder() + "/" + name + kRetiredSuffix; };
  { const Written file("old"); }
  ASSERT_TRUE(rename_file(folder() + "/old.flight", path("old")));
  { const Written file("new"); }
  ASSERT_TRUE(rename_file(folder() + "/new.flight", path("new")));
  std::ofstream(path("zeros")) << std::string(4096, '\0');
  for (const char* name : {"old", "zeros"}) make_old(path(name));
  EXPECT_THAT(list_files(), IsEmpty());
  EXPECT_THAT(read_files().files, IsEmpty());
  EXPECT_EQ(remove_stale_files(16, std::chrono::hours(24)), 0U);
  EXPECT_TRUE(std::filesystem::exists(living));
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_FALSE(std::filesystem::exists(path("old"))) << "without ranks";
  EXPECT_FALSE(std::filesystem::exists(path("zeros")));
  EXPECT_TRUE(std::filesystem::exists(path("new"))) << "its ranks may be about to come";
}

TEST(FlightFolderTest, AFileThatIsShortenedWhileItIsReadIsNoFile) {
  const FlightFolder scope;
  const Written file("short");
  std::string content(file.bytes, '\0');
  ASSERT_EQ(pread(file.file.descriptor, content.data(), content.size(), 0),
            static_cast<ssize_t>(content.size()));
  std::atomic<bool> is_over{false};
  // Its own mapping is not touched any more.
  std::thread shortener([&] {
    while (!is_over.load()) {
      ASSERT_EQ(ftruncate(file.file.descriptor, 0), 0);
      ASSERT_EQ(pwrite(file.file.descriptor, content.data(), content.size(), 0),
                static_cast<ssize_t>(content.size()));
    }
  });
  for (int round = 0; round < 3000; ++round) {
    for (const OpenFile& copy : read_files().files) {
      for (int rank = 0; rank < copy.view().header().ranks; ++rank) {
        EXPECT_EQ(copy.view().rank(rank).pid, 0);
        EXPECT_FALSE(copy.view().newest(rank));
      }
    }
    if (const auto copy = OpenFile::open(file.file.path)) {
      EXPECT_FALSE(copy->has_begun());
    }
  }
  is_over = true;
  shortener.join();
}

TEST(FlightFolderTest, EveryRecordOfACopyIsOneThatWasWritten) {
  const FlightFolder scope;
  const Written file("busy", 1);
  const View view = file.view();
  view.rank(0).pid = this_process().pid;
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (std::uint64_t ticket = 1; !is_over.load(); ++ticket) {
      Record record{};
      record.call.number = record.call.count = static_cast<std::int64_t>(ticket);
      record.bytes = record.enqueued_ns = static_cast<std::int64_t>(ticket);
      record.stream = record.call.window_offset = ticket;
      view.ring(0)[ticket % kRing].put(ticket, record);
      view.rank(0).recorded.store(ticket, std::memory_order_release);
    }
  });
  std::size_t seen = 0;
  for (int round = 0; round < 300 || seen == 0; ++round) {
    const auto copy = OpenFile::open(file.file.path);
    ASSERT_TRUE(copy);
    const std::uint64_t newest = copy->view().rank(0).recorded.load();
    for (std::uint64_t back = 0; back < std::min<std::uint64_t>(newest, kRing); ++back) {
      const std::uint64_t ticket = newest - back;
      const auto record = copy->view().ring(0)[ticket % kRing].get(ticket);
      if (!record) continue;
      ++seen;
      const auto number = static_cast<std::int64_t>(ticket);
      ASSERT_TRUE(record->call.number == number && record->call.count == number &&
                  record->bytes == number && record->enqueued_ns == number &&
                  record->stream == ticket && record->call.window_offset == ticket)
          << ticket;
    }
  }
  is_over = true;
  writer.join();
}

TEST(FlightFolderTest, ACallInACopyNeverEndsBeforeItBegins) {
  const FlightFolder scope;
  const Written file("calls", 1);
  Words& words = file.view().words(0);
  std::atomic<bool> is_over{false};
  std::thread device([&] {
    for (std::uint64_t call = 1; !is_over.load(); ++call) {
      __atomic_store_n(&words.started, call, __ATOMIC_RELEASE);
      __atomic_store_n(&words.finished, call, __ATOMIC_RELEASE);
    }
  });
  for (int round = 0; round < 1000; ++round) {
    const auto copy = OpenFile::open(file.file.path);
    ASSERT_TRUE(copy);
    EXPECT_GE(copy->view().words(0).started, copy->view().words(0).finished);
  }
  is_over = true;
  device.join();
}

// Ranks of a group that has ended, with one that lives if `lives`.
void fill_ranks(const Written& file, bool lives) {
  ProcessStamp ended = this_process();
  ++ended.start_time;
  const ProcessStamp second = lives ? this_process() : ended;
  const ProcessStamp stamps[] = {ended, second};
  for (int rank = 0; rank < 2; ++rank) {
    file.view().rank(rank).start_time = stamps[rank].start_time;
    file.view().rank(rank).pid = stamps[rank].pid;
  }
}

TEST(FlightFolderTest, AFileIsOverWhenItsLastRankHasEnded) {
  const FlightFolder scope;
  const Written file("group");
  for (const bool lives : {true, false}) {
    fill_ranks(file, lives);
    const auto opened = OpenFile::open(file.file.path);
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->is_over(), !lives);
  }
}

TEST(FlightFolderTest, AsManyFilesOfEndedGroupsStayAsAreToBeKept) {
  const FlightFolder scope;
  for (int i = 0; i < 5; ++i) fill_ranks(Written("ended" + std::to_string(i)), false);
  fill_ranks(Written("running"), true);
  EXPECT_EQ(remove_stale_files(2, std::chrono::hours(1)), 3U);
  EXPECT_THAT(list_files(), SizeIs(3));
  EXPECT_EQ(remove_stale_files(2, std::chrono::hours(1)), 0U);
}

// Else the kernel kills the writer when the room is gone.
TEST(FlightFolderTest, AFileHasItsRoomOrIsNotMade) {
  const FlightFolder scope;
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const NewFile made = create_file("made", kBytes);
  ASSERT_GE(made.descriptor, 0) << made.failure;
  struct stat facts {};
  ASSERT_EQ(fstat(made.descriptor, &facts), 0);
  EXPECT_GE(static_cast<std::size_t>(facts.st_blocks) * 512, kBytes);
  close(made.descriptor);
  const NewFile failed = create_file("failed", std::size_t{1} << 60);
  EXPECT_LT(failed.descriptor, 0);
  EXPECT_THAT(failed.failure, HasSubstr("failed"));
  EXPECT_FALSE(std::filesystem::exists(failed.path));
}

TEST(FlightFolderTest, AFileWhoseHeaderDoesNotFitIsNoFile) {
  const FlightFolder scope;
  const Written file("odd");
  Header& header = file.view().header();
  ASSERT_TRUE(OpenFile::open(file.file.path));
  for (const std::uint64_t page_bytes : {129U, 4097U, 1U << 23}) {
    Header changed{};
    View::lay_out(changed, 2, page_bytes);
    header.page_bytes = changed.page_bytes;
    header.words_at = changed.words_at;
    header.rings_at = changed.rings_at;
    header.mailboxes_at = changed.mailboxes_at;
    header.bytes = changed.bytes;
    EXPECT_FALSE(OpenFile::open(file.file.path)) << page_bytes;
  }
}

}  // namespace
}  // namespace gantry::flight
