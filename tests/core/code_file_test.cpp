// Which files may run code in this process.
#include "core/files/code_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gantry/core/env.hpp>

#include "core/files/shared_library.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr uid_t kOtherUser = 12345;

class CodeFileTest : public ::testing::Test {
 protected:
  fs::path make(const fs::path& name, mode_t mode = 0700) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "#!/bin/sh\n";
    EXPECT_EQ(chmod((folder_ / name).c_str(), mode), 0);
    return folder_ / name;
  }
  static std::string problem(const fs::path& path, CodeOrigin origin = CodeOrigin::found) {
    return check_code_file(path, origin).problem;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(CodeFileTest, AFileOfThisUserIsTaken) {
  const fs::path file = make("bin/tool");
  EXPECT_EQ(problem(file), "");
  EXPECT_EQ(check_code_file(file, CodeOrigin::found).path, fs::canonical(file));
  EXPECT_EQ(problem("/bin/sh"), "");
  fs::create_symlink(file, folder_ / "link");
  EXPECT_EQ(check_code_file(folder_ / "link", CodeOrigin::found).path, fs::canonical(file));
}

TEST_F(CodeFileTest, RelativePathsAndOtherKindsOfFilesAreRefused) {
  EXPECT_EQ(problem("bin/tool"), "expected an absolute path");
  EXPECT_EQ(problem("./tool", CodeOrigin::named), "expected an absolute path");
  EXPECT_EQ(problem(folder_ / "none"), "No such file or directory");
  EXPECT_EQ(problem(folder_.path()), "a directory");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(problem(folder_ / "pipe"), "a named pipe");
}

TEST_F(CodeFileTest, WhatEverybodyMayWriteIsRefused) {
  const fs::path file = make("bin/tool", 0707);
  for (const CodeOrigin origin : {CodeOrigin::found, CodeOrigin::named}) {
    EXPECT_EQ(problem(file, origin), "others may write it (mode 707)");
  }
  ASSERT_EQ(chmod(file.c_str(), 0700), 0);
  ASSERT_EQ(chmod((folder_ / "bin").c_str(), 0707), 0);
  for (const CodeOrigin origin : {CodeOrigin::found, CodeOrigin::named}) {
    EXPECT_THAT(problem(file, origin), HasSubstr("others may write '"));
    EXPECT_THAT(problem(file, origin), EndsWith("/bin' (mode 707)"));
  }
  // Whoever may write the folder above may replace the folder.
  const fs::path deep = make("bin/deep/tool");
  EXPECT_THAT(problem(deep), EndsWith("/bin' (mode 707)"));
  ASSERT_EQ(chmod((folder_ / "bin").c_str(), 01777), 0);
  EXPECT_EQ(problem(file), "");
  // A link that leads out of such a folder is what it leads to.
  const fs::path good = make("good/tool");
  ASSERT_EQ(chmod((folder_ / "bin").c_str(), 0707), 0);
  fs::create_symlink(good, folder_ / "bin" / "link");
  EXPECT_EQ(check_code_file(folder_ / "bin" / "link", CodeOrigin::found).path, fs::canonical(good));
}

TEST_F(CodeFileTest, AGroupOfOthersMayNotWrite) {
  const fs::path file = make("bin/tool", 0770);
  // The owner's private group has the owner's number.
  if (chown(file.c_str(), uid_t(-1), geteuid()) == 0) {
    EXPECT_EQ(problem(file), "");
  }
  if (chown(file.c_str(), uid_t(-1), kOtherUser) != 0)
    GTEST_SKIP() << "only root gives groups away";
  EXPECT_EQ(problem(file), "others may write it (mode 770)");
  EXPECT_EQ(problem(file, CodeOrigin::named), "");
}

TEST_F(CodeFileTest, FilesAndFoldersOfOtherUsersAreRefused) {
  const fs::path file = make("bin/tool", 0755);
  if (chown(file.c_str(), kOtherUser, gid_t(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(problem(file), "it belongs to user 12345");
  EXPECT_EQ(problem(file, CodeOrigin::named), "");
  ASSERT_EQ(chown(file.c_str(), 0, gid_t(-1)), 0);
  ASSERT_EQ(chown((folder_ / "bin").c_str(), kOtherUser, gid_t(-1)), 0);
  EXPECT_THAT(problem(file), EndsWith("/bin' belongs to user 12345"));
  // The users whose code runs already: of gantry's own file and its folders.
  const fs::path own = make("lib/libgantry.so");
  ASSERT_EQ(chown((folder_ / "lib").c_str(), kOtherUser, gid_t(-1)), 0);
  EXPECT_TRUE(check_code_file(file, CodeOrigin::found, own).ok());
}

TEST_F(CodeFileTest, LibrariesOfOtherUsersAreNotLoaded) {
  const std::string relative = "./libx.so";
  EXPECT_EQ(SharedLibrary({relative}).problem(),
            "failed to load ./libx.so: expected an absolute path");
  const fs::path file = make("lib/libx.so");
  EXPECT_THAT(SharedLibrary({file.string()}).problem(), HasSubstr(": file too short"))
      << "the loader has seen it";
  if (chown(file.c_str(), kOtherUser, gid_t(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(SharedLibrary({file.string()}).problem(),
            "failed to load " + file.string() + ": it belongs to user 12345");
}

TEST_F(CodeFileTest, PathHasAbsoluteFoldersOnly) {
  const fs::path good = make("good/gantry-tool");
  const fs::path open = make("open/gantry-tool");
  ASSERT_EQ(chmod((folder_ / "open").c_str(), 0777), 0);
  const std::string before = env::get("PATH").value_or("");
  const fs::path folder = fs::current_path();
  fs::current_path(folder_ / "open");
  const auto find = [&](const std::string& path) {
    setenv("PATH", path.c_str(), 1);
    return find_in_path("gantry-tool").value_or("none");
  };
  EXPECT_EQ(find(":.:./:../open"), "none");
  EXPECT_EQ(find((folder_ / "open").string()), "none");
  EXPECT_EQ(find("::.:" + (folder_ / "open").string() + ":" + (folder_ / "good").string()), good);
  EXPECT_EQ(find(""), "none");
  setenv("PATH", before.c_str(), 1);
  fs::current_path(folder);
}

TEST(GantryFileTest, TheCurrentFolderDoesNotMatter) {
  const fs::path file = gantry_file();
  EXPECT_TRUE(file.is_absolute());
  EXPECT_TRUE(fs::is_regular_file(file)) << file;
  const fs::path before = fs::current_path();
  fs::current_path("/");
  EXPECT_EQ(gantry_file(), file);
  fs::current_path(before);
}

}  // namespace
}  // namespace gantry
