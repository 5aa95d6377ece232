// Files that gantry writes, in folders that another user prepared.
#include "core/files/output_file.hpp"

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

#include "core/files/output_stream.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using ::testing::HasSubstr;

constexpr uid_t kOtherUser = 12345;

class OutputFileTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  void make(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  // Gives a file or link to the stranger; false if only root could.
  [[nodiscard]] bool give(const std::string& name) const {
    return lchown(path(name).c_str(), kOtherUser, gid_t(-1)) == 0;
  }
  // Writes "new" and returns why it could not.
  static std::string write(const std::string& name) {
    const OutputFile opened = open_output(name);
    if (opened.ok()) {
      EXPECT_TRUE(write_all(opened.file.get(), "new"));
    }
    return opened.problem;
  }
  static std::string belongs(const std::string& what) {
    return what + " belongs to user 12345, and this process runs as user " +
           std::to_string(geteuid());
  }

  testing::TemporaryFolder folder_;
};

TEST_F(OutputFileTest, OpensNewAndOwnFiles) {
  const OutputFile made = open_output(path("file"));
  EXPECT_TRUE(made.is_new);
  EXPECT_NE(fcntl(made.file.get(), F_GETFD) & FD_CLOEXEC, 0);
  make("file", "older than this");
  EXPECT_FALSE(open_output(path("file"), OldContent::keep).is_new);
  EXPECT_EQ(content_of(path("file")), "older than this");
  EXPECT_EQ(write(path("file")), "");
  EXPECT_EQ(content_of(path("file")), "new");
  EXPECT_EQ(write(path("./x/../file")), "No such file or directory");
  fs::create_directory(path("x"));
  EXPECT_EQ(write(path(".//x/../other")), "");
  EXPECT_EQ(content_of(path("other")), "new");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_EQ(write("relative"), "");
  fs::current_path(before);
  EXPECT_EQ(content_of(path("relative")), "new");
}

TEST_F(OutputFileTest, SaysWhyThereIsNone) {
  EXPECT_EQ(write(""), "No such file or directory");
  EXPECT_EQ(write("/"), "Is a directory");
  EXPECT_EQ(write(path("..")), "Is a directory");
  EXPECT_EQ(write(folder_.path()), "Is a directory");
  EXPECT_EQ(write(path("none/file")), "No such file or directory");
  EXPECT_EQ(write(path("none/")), "No such file or directory");
  make("file", "");
  EXPECT_EQ(write(path("file/x")), "Not a directory");
  EXPECT_EQ(write(path("file/")), "Not a directory");
  fs::create_symlink("loop", path("loop"));
  EXPECT_EQ(write(path("loop")), "Too many levels of symbolic links");
  EXPECT_EQ(write(path(std::string(300, 'x'))), "File name too long");
}

// The test would hang here, and so did glaunch.
TEST_F(OutputFileTest, ANamedPipeIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(write(path("pipe")), "a named pipe");
  EXPECT_EQ(why_no_output(path("pipe")), "a named pipe");
  fs::create_symlink("pipe", path("link"));
  EXPECT_EQ(write(path("link")), "a named pipe");
}

TEST_F(OutputFileTest, OwnLinksAreFollowed) {
  make("file", "old");
  fs::create_directory(path("folder"));
  fs::create_symlink("file", path("relative"));
  fs::create_symlink(path("relative"), path("absolute"));
  fs::create_symlink("folder", path("to_folder"));
  fs::create_symlink("../made", path("folder/dangling"));
  EXPECT_EQ(write(path("absolute")), "");
  EXPECT_EQ(content_of(path("file")), "new");
  EXPECT_EQ(write(path("to_folder/dangling")), "");
  EXPECT_EQ(content_of(path("made")), "new");
  EXPECT_TRUE(fs::is_symlink(path("absolute")));
}

TEST_F(OutputFileTest, LinksOfOtherUsersAreRefused) {
  make("file", "precious");
  fs::create_directory(path("folder"));
  fs::create_symlink("file", path("link"));
  fs::create_symlink("link", path("own"));
  fs::create_symlink("folder", path("to_folder"));
  fs::create_symlink("nothing", path("dangling"));
  if (!give("link") || !give("to_folder") || !give("dangling")) {
    GTEST_SKIP() << "only root gives files away";
  }
  EXPECT_EQ(write(path("link")), belongs("the link 'link'"));
  EXPECT_EQ(write(path("own")), belongs("the link 'link'"));
  EXPECT_EQ(write(path("to_folder/file")), belongs("the link 'to_folder'"));
  EXPECT_EQ(write(path("dangling")), belongs("the link 'dangling'"));
  EXPECT_EQ(why_no_output(path("link")), belongs("the link 'link'"));
  EXPECT_EQ(content_of(path("file")), "precious");
  EXPECT_FALSE(fs::exists(path("nothing")));
  EXPECT_TRUE(fs::is_empty(path("folder")));
}

TEST_F(OutputFileTest, FilesOfOtherUsersAreRefused) {
  make("file", "theirs");
  if (!give("file")) GTEST_SKIP() << "only root gives files away";
  fs::permissions(path("file"), fs::perms::all);
  EXPECT_EQ(write(path("file")), belongs("it"));
  EXPECT_EQ(content_of(path("file")), "theirs");
}

// What root made is as good as what this user made; what another one made is not.
TEST_F(OutputFileTest, APlainUserTrustsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root takes another user id";
  fs::permissions(folder_.path(), fs::perms::all | fs::perms::sticky_bit);
  make("file", "root's");
  fs::permissions(path("file"), fs::perms::all);
  fs::create_symlink("file", path("link"));
  fs::create_symlink("file", path("other"));
  ASSERT_TRUE(give("other"));
  std::thread([&] {
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(syscall(SYS_setresuid, kNobody, kNobody, -1), 0);
    EXPECT_EQ(write(path("link")), "");
    EXPECT_EQ(write(path("other")), belongs("the link 'other'"));
  }).join();
  EXPECT_EQ(content_of(path("file")), "new");
}

TEST_F(OutputFileTest, AFileWithNamesElsewhereIsRefusedInASharedFolder) {
  make("precious", "precious");
  fs::create_directory(path("shared"));
  fs::create_hard_link(path("precious"), path("shared/file"));
  EXPECT_EQ(write(path("shared/file")), "");
  fs::permissions(path("shared"), fs::perms::all | fs::perms::sticky_bit);
  make("precious", "precious");
  EXPECT_EQ(write(path("shared/file")),
            "it has 2 names, and other users may make names in its folder");
  EXPECT_EQ(content_of(path("precious")), "precious");
}

TEST_F(OutputFileTest, DevicesAndDescriptorsGoOnWorking) {
  EXPECT_EQ(write("/dev/null"), "");
  EXPECT_EQ(open_output("/dev/full").problem, "");
  make("file", "");
  const UniqueFd file(open(path("file").c_str(), O_WRONLY));
  const UniqueFd input(open(path("file").c_str(), O_RDONLY));
  const std::string number = std::to_string(file.get());
  EXPECT_EQ(write("/dev/fd/" + number), "");
  EXPECT_EQ(write("/proc/self/fd/" + number), "");
  fs::create_symlink("/dev/fd/" + number, path("link"));
  EXPECT_EQ(write(path("link")), "");
  EXPECT_EQ(content_of(path("file")), "newnewnew") << "one position, as of the descriptor";
  EXPECT_EQ(write("/dev/fd/" + std::to_string(input.get())), "Bad file descriptor");
  EXPECT_EQ(write("/dev/fd/999"), "No such file or directory");
  for (const auto& [name, descriptor] :
       {std::pair("/dev/stdout", 1), std::pair("/dev/stderr", 2)}) {
    EXPECT_EQ(find_output(name).descriptor, descriptor);
    EXPECT_EQ(open_output(name).problem, "");
  }
}

TEST_F(OutputFileTest, WarnsOnceOfAnOpenFolder) {
  const auto said = [&](const std::string& name) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(write(path(name)), "");
    return ::testing::internal::GetCapturedStderr();
  };
  fs::create_directory(path("open"));
  fs::permissions(path("open"), fs::perms::all);
  EXPECT_THAT(said("open/first"),
              HasSubstr("the folder of the output file 'first' is not this user's alone: everybody "
                        "may write it (mode 777); other users may replace the file"));
  EXPECT_EQ(said("open/second"), "");
  fs::create_directory(path("sticky"));
  fs::permissions(path("sticky"), fs::perms::all | fs::perms::sticky_bit);
  EXPECT_EQ(said("sticky/file"), "");
  fs::create_directory(path("foreign"));
  if (!give("foreign")) GTEST_SKIP() << "only root gives files away";
  EXPECT_THAT(said("foreign/file"), HasSubstr("it belongs to user 12345"));
}

TEST_F(OutputFileTest, ALookLeavesNothing) {
  EXPECT_EQ(why_no_output(path("file")), "");
  EXPECT_FALSE(fs::exists(path("file")));
  make("file", "old");
  EXPECT_EQ(why_no_output(path("file")), "");
  EXPECT_EQ(content_of(path("file")), "old");
  fs::create_symlink("made", path("dangling"));
  EXPECT_EQ(why_no_output(path("dangling")), "");
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  EXPECT_FALSE(fs::exists(path("made")));
}

TEST_F(OutputFileTest, RemovesTheNameAlone) {
  make("file", "precious");
  fs::create_directory(path("folder"));
  make("folder/file", "precious");
  fs::create_symlink("file", path("link"));
  EXPECT_TRUE(remove_output(path("link")));
  EXPECT_TRUE(fs::exists(path("file")));
  EXPECT_FALSE(remove_output(path("link")));
  EXPECT_TRUE(remove_output(path("file")));
  fs::create_symlink("folder", path("to_folder"));
  if (!give("to_folder")) GTEST_SKIP() << "only root gives files away";
  EXPECT_FALSE(remove_output(path("to_folder/file")));
  EXPECT_TRUE(fs::exists(path("folder/file")));
}

TEST_F(OutputFileTest, AStreamKeepsTheFirstFailure) {
  OutputStream stream(open_output(path("file")).file);
  stream << "a" << std::string(200'000, 'b') << 'c' << 12;
  EXPECT_EQ(stream.close(), 0);
  EXPECT_EQ(content_of(path("file")), "a" + std::string(200'000, 'b') + "c12");
  OutputStream full(open_output("/dev/full").file);
  full << "x" << std::flush;
  EXPECT_FALSE(full.good());
  full << "y";
  EXPECT_EQ(full.close(), ENOSPC);
  OutputStream closed;
  closed << "x";
  EXPECT_EQ(closed.close(), EBADF);
}

}  // namespace
}  // namespace gantry
