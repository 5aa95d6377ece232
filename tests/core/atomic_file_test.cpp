// Files that are replaced at once.
#include "core/files/atomic_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class AtomicFileTest : public ::testing::Test {
 protected:
  static void write(const fs::path& path, const std::string& text) {
    AtomicFile file(path, "test: ");
    file.out() << text;
    file.commit();
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  // Runs `body` as a user whom permissions concern: root takes another user id for one thread.
  template <class Body>
  static void as_plain_user(Body&& body) {
    std::thread([&] {
      constexpr uid_t kNobody = 65534;
      if (geteuid() == 0) {
        ASSERT_EQ(syscall(SYS_setresuid, kNobody, kNobody, -1), 0);
      }
      body();
    }).join();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(AtomicFileTest, HasTheOldContentUntilCommit) {
  std::ofstream(folder_ / "file") << "old";
  {
    AtomicFile file(folder_ / "file");
    file.out() << "new" << std::flush;
    EXPECT_EQ(content_of(folder_ / "file"), "old");
    file.commit();
    EXPECT_EQ(content_of(folder_ / "file"), "new");
  }
  EXPECT_EQ(content_of(folder_ / "file"), "new");
  EXPECT_THAT(names(), ElementsAre("file"));
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  std::ofstream(folder_ / "file") << "old";
  AtomicFile(folder_ / "file").out() << "new";
  AtomicFile(folder_ / "other").out() << "new";
  EXPECT_EQ(content_of(folder_ / "file"), "old");
  EXPECT_THAT(names(), ElementsAre("file"));
}

TEST_F(AtomicFileTest, ALinkStaysALinkAndPermissionsStay) {
  std::ofstream(folder_ / "file") << "old";
  fs::permissions(folder_ / "file", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", folder_ / "link");
  write(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content_of(folder_ / "file"), "new");
  EXPECT_EQ(fs::status(folder_ / "file").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("none", folder_ / "dangling");
  write(folder_ / "dangling", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(content_of(folder_ / "none"), "new");
}

TEST_F(AtomicFileTest, ANewFileHasThePermissionsOfTheUmask) {
  const mode_t before = umask(0027);
  write(folder_ / "file", "new");
  umask(before);
  EXPECT_EQ(static_cast<unsigned>(fs::status(folder_ / "file").permissions()), 0640U);
}

TEST_F(AtomicFileTest, ADescriptorIsWrittenInPlace) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  write("/dev/fd/" + std::to_string(ends[1]), "new");
  write("/proc/self/fd/" + std::to_string(ends[1]), "er");
  close(ends[1]);
  char text[16] = {};
  EXPECT_EQ(read(ends[0], text, sizeof text), 5);
  EXPECT_STREQ(text, "newer");
  close(ends[0]);
}

// Its reader may never come.
TEST_F(AtomicFileTest, ANamedPipeIsRefused) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { write(folder_ / "pipe", "new"); },
              ThrowsMessage<Error>(::testing::EndsWith("/pipe': a named pipe")));
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
  EXPECT_THAT(names(), ElementsAre("pipe"));
}

TEST_F(AtomicFileTest, FilesAndLinksOfOtherUsersAreRefused) {
  constexpr uid_t kOtherUser = 12345;
  std::ofstream(folder_ / "own") << "own";
  std::ofstream(folder_ / "theirs") << "theirs";
  fs::create_symlink("own", folder_ / "link");
  if (lchown((folder_ / "link").c_str(), kOtherUser, gid_t(-1)) != 0) {
    GTEST_SKIP() << "only root gives files away";
  }
  ASSERT_EQ(chown((folder_ / "theirs").c_str(), kOtherUser, gid_t(-1)), 0);
  EXPECT_THAT([&] { write(folder_ / "link", "new"); },
              ThrowsMessage<Error>(::testing::EndsWith(
                  "/link': the link 'link' belongs to user 12345, and this process runs as user "
                  "0")));
  EXPECT_THAT([&] { write(folder_ / "theirs", "new"); },
              ThrowsMessage<Error>(::testing::EndsWith(
                  "/theirs': it belongs to user 12345, and this process runs as user 0")));
  EXPECT_EQ(content_of(folder_ / "own"), "own");
  EXPECT_EQ(content_of(folder_ / "theirs"), "theirs");
  EXPECT_THAT(names(), ::testing::SizeIs(3));
}

TEST_F(AtomicFileTest, FilesOfOthersAreNotTakenForTemporaryOnes) {
  std::ofstream(folder_ / "victim") << "theirs";
  for (int number = 0; number < 3; ++number) {
    fs::create_symlink("victim", folder_ / ("file." + std::to_string(getpid()) + "." +
                                            std::to_string(number) + ".tmp"));
  }
  write(folder_ / "file", "new");
  EXPECT_EQ(content_of(folder_ / "file"), "new");
  EXPECT_EQ(content_of(folder_ / "victim"), "theirs");
  EXPECT_THAT(names(), ::testing::SizeIs(5));
}

TEST_F(AtomicFileTest, SaysWhyAFileCannotBeWritten) {
  EXPECT_THAT(
      [&] { write(folder_ / "none" / "file", "new"); },
      ThrowsMessage<Error>("test: failed to write '" + (folder_ / "none" / "file").string() +
                           "': No such file or directory"));
  EXPECT_THAT([&] { write(folder_.path(), "new"); },
              ThrowsMessage<Error>(::testing::EndsWith("': Is a directory")));
  EXPECT_THAT([] { write("/dev/full", "new"); },
              ThrowsMessage<Error>("test: failed to write '/dev/full': No space left on device"));
  EXPECT_THAT([] { write("/dev/full", std::string(1 << 20, 'x')); },
              ThrowsMessage<Error>("test: failed to write '/dev/full': No space left on device"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(AtomicFileTest, PermissionsOfTheFileCount) {
  fs::permissions(folder_.path(), fs::perms::all);
  std::ofstream(folder_ / "read_only") << "old";
  ASSERT_EQ(chmod((folder_ / "read_only").c_str(), 0444), 0);
  as_plain_user([&] {
    EXPECT_THAT([&] { write(folder_ / "read_only", "new"); },
                ThrowsMessage<Error>(::testing::EndsWith("': Permission denied")));
  });
  EXPECT_EQ(content_of(folder_ / "read_only"), "old");
}

TEST_F(AtomicFileTest, AFolderThatTakesNoFilesIsNoHindrance) {
  std::ofstream(folder_ / "file") << "older than this";
  fs::permissions(folder_ / "file", fs::perms::all);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  as_plain_user([&] { write(folder_ / "file", "new"); });
  fs::permissions(folder_.path(), fs::perms::owner_all);
  EXPECT_EQ(content_of(folder_ / "file"), "new");
}

TEST_F(AtomicFileTest, ThreadsMayReplaceTheSameFile) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 50; ++turn) {
        write(folder_ / "file", std::string(10'000, static_cast<char>('a' + i)));
        const std::string seen = content_of(folder_ / "file");
        EXPECT_EQ(seen, std::string(10'000, seen.at(0)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(names(), ElementsAre("file"));
}

}  // namespace
}  // namespace gantry
