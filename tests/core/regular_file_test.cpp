// Files that a user names.
#include "core/files/regular_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/descriptor_limit.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

class RegularFileTest : public ::testing::Test {
 protected:
  testing::TemporaryFolder temporary_;
  std::string folder_ = temporary_.path().string();
};

TEST_F(RegularFileTest, ReadsAllOfAFileThatIsNotTooLarge) {
  const std::string path = folder_ + "/file";
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 3 << 20}) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text.push_back(static_cast<char>(i * 7));
    std::ofstream(path, std::ios::binary) << text;
    const FileContent content = read_regular_file(path, size);
    EXPECT_TRUE(content.ok()) << content.problem;
    EXPECT_EQ(content.text, text) << size;
    if (size == 0) continue;
    EXPECT_EQ(read_regular_file(path, size - 1).problem,
              "a file of more than " + std::to_string(size - 1) + " bytes");
    EXPECT_TRUE(read_regular_file(path, size - 1).text.empty());
  }
  std::filesystem::create_symlink(path, folder_ + "/link");
  EXPECT_TRUE(read_regular_file(folder_ + "/link", 4 << 20).ok());
}

TEST_F(RegularFileTest, ReadsFilesWhoseSizeTheSystemDoesNotTell) {
  const FileContent content = read_regular_file("/proc/self/status", 1 << 20);
  EXPECT_TRUE(content.ok()) << content.problem;
  EXPECT_NE(content.text.find("Pid:"), std::string::npos);
}

TEST_F(RegularFileTest, SaysWhatIsNoRegularFile) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_regular_file(pipe, 100).problem, "a named pipe") << "nobody writes to it";
  EXPECT_EQ(read_regular_file("/dev/zero", 100).problem, "a device");
  EXPECT_EQ(read_regular_file("/dev/null", 100).problem, "a device");
  EXPECT_EQ(read_regular_file(folder_, 100).problem, "a directory");
  EXPECT_EQ(read_regular_file(folder_ + "/none", 100).problem, "No such file or directory");
  EXPECT_EQ(why_not_regular(pipe), "a named pipe");
}

TEST_F(RegularFileTest, SaysThatThisProcessLacksDescriptors) {
  const std::string path = folder_ + "/file";
  std::ofstream(path) << "text";
  const testing::DescriptorLimit limit;
  EXPECT_EQ(read_regular_file(path, 100).problem, "Too many open files");
}

}  // namespace
}  // namespace gantry
