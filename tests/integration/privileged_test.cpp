// Programs with more rights than their caller honour no variable of that caller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gantry/core/env.hpp>

#include "tests/support/sanitized.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Command;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

constexpr uid_t kCaller = 12345;
constexpr const char* kProgram = GANTRY_TEST_PROGRAM_DIR "/privileged_program";

// True if every user may enter the folder.
bool is_open_to_all(fs::path folder) {
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const fs::perms rights = fs::status(folder).permissions();
    if ((rights & fs::perms::others_exec) == fs::perms::none) return false;
  }
  return true;
}

class PrivilegedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kIsSanitized) GTEST_SKIP() << "sanitizers look into no program of another user";
    if (geteuid() != 0) GTEST_SKIP() << "only root makes a program that runs as another user";
    fs::permissions(folder_.path(), fs::perms(0711));
    for (const char* name : {"here", "tools", "bin"}) fs::create_directory(folder_ / name);
    fs::permissions(folder_ / "here", fs::perms(01777));
    for (const char* name : {"c++", "gantry-snapshot"}) make_tool(name);
    fs::copy_file(GANTRY_TEST_DECOY, folder_ / "tools" / "libdecoy.so");
    fs::copy_file(GANTRY_TEST_SNAPSHOT, folder_ / "bin" / "gantry-snapshot");
    fs::copy_file(kProgram, folder_ / "bin" / "program");
  }

  // A program of the caller that leaves a mark.
  void make_tool(const char* name) const {
    std::ofstream(folder_ / "tools" / name) << "#!/bin/sh\necho $0 >> $GANTRY_TEST_DECOY_MARK\n";
    fs::permissions(folder_ / "tools" / name, fs::perms(0755));
  }
  [[nodiscard]] std::string here(const char* name) const { return folder_ / "here" / name; }

  // The report of the program, which the caller starts with all variables set.
  Outcome run(mode_t mode) const {
    const fs::path program = folder_ / "bin" / "program";
    EXPECT_EQ(chmod(program.c_str(), mode), 0);
    Command command{.argv = {"/bin/sh", "-c",
                             "cd '" + (folder_ / "here").string() + "' && exec '" + kProgram +
                                 "' as " + std::to_string(kCaller) + " '" + program.string() +
                                 "' report"}};
    const std::string tools = folder_ / "tools";
    command.environment = {{"PATH", tools + ":/usr/bin:/bin"},
                           {"CXX", tools + "/c++"},
                           {"TMPDIR", here("")},
                           {"HOME", here("")},
                           {"XDG_CACHE_HOME", here("cache")},
                           {"HWLOC_PLUGINS_PATH", tools},
                           {"GANTRY_SIM_DEVICES", "2"},
                           {"GANTRY_TRACE", here("trace{rank}.json")},
                           {"GANTRY_ERROR_FILE", here("note")},
                           {"GANTRY_SNAPSHOT_TOOL", tools + "/gantry-snapshot"},
                           {"GANTRY_NVML_PATH", tools + "/libdecoy.so"},
                           {"GANTRY_JIT_CACHE", here("jit")},
                           {"GANTRY_FLIGHT_DIR", here("")},
                           {"GANTRY_RANK", "1"},
                           {"GANTRY_WORLD_SIZE", "3"},
                           {"NVTX_INJECTION64_PATH", tools + "/libdecoy.so"},
                           {"GANTRY_TEST_DECOY_MARK", here("mark")}};
    return testing::run_command(command);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PrivilegedTest, AProgramWithTheSetUserIdBitHonoursNothing) {
  const Outcome outcome = run(04755);
  if (outcome.out.starts_with("privileged 0")) GTEST_SKIP() << "files here have no set-user-id bit";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("privileged 1\n"), Not(HasSubstr("honours")),
                                 HasSubstr("devices: 0\n"), HasSubstr("size: 1\n"),
                                 HasSubstr("program: none\n"), HasSubstr("CXX is unset")));
  for (const char* name : {"mark", "note", "trace1.json", "jit", "cache"}) {
    EXPECT_FALSE(fs::exists(here(name))) << name << outcome.describe();
  }
}

// The same program without the bit does, so the test would see it.
TEST_F(PrivilegedTest, AProgramWithoutItHonoursAll) {
  // The program's libraries are loaded with the rights of its caller.
  if (!is_open_to_all(GANTRY_TEST_PROGRAM_DIR)) {
    GTEST_SKIP() << "another user cannot enter " << GANTRY_TEST_PROGRAM_DIR;
  }
  const Outcome outcome = run(0755);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("privileged 0\n"), HasSubstr("honours PATH\n"),
                                 HasSubstr("honours GANTRY_TRACE\n"), HasSubstr("devices: 2\n"),
                                 HasSubstr("size: 3\n"), HasSubstr("program: /usr/bin/sh\n")));
  for (const char* name : {"mark", "note"}) {
    EXPECT_TRUE(fs::exists(here(name))) << name << outcome.describe();
  }
}

}  // namespace
}  // namespace gantry
